// kfake starts one broker of franz-go's fake Kafka on 127.0.0.1 that answers like a vendor's: it takes the requests
// and versions of a table, and no others.
//
//	kfake -port 20001 -table tables/event-hubs.json -data DIR
//
// It runs until SIGTERM or SIGINT. What is stored in DIR is there again after a restart.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

const apiVersionsKey = 18

var errTooNew = errors.New("this ApiVersions is newer than the server knows")

// table is a file of tables/. Requests maps Kafka's name of a request to its newest version; a table without requests
// offers all that kfake has. ClosesOnNewer: the server closes the connection when ApiVersions comes in a newer version
// than it knows, in place of the answer that KIP-511 asks for.
type table struct {
	Text          string
	Sources       []string
	Requests      map[string]int16
	ClosesOnNewer bool `json:"closes_on_newer_api_versions"`
}

func main() {
	port := flag.Int("port", 0, "port on 127.0.0.1")
	path := flag.String("table", "", "JSON file with the requests and versions to offer")
	data := flag.String("data", "", "folder for what is stored")
	flag.Parse()
	if err := serve(*port, *path, *data); err != nil {
		fmt.Fprintln(os.Stderr, "kfake:", err)
		os.Exit(1)
	}
}

func serve(port int, path, data string) error {
	if port == 0 || path == "" || data == "" {
		return errors.New("-port, -table and -data are needed")
	}
	read, err := readTable(path)
	if err != nil {
		return err
	}
	options := []kfake.Opt{
		kfake.Ports(port),
		kfake.DataDir(data),
		kfake.WithLogger(kfake.BasicLogger(os.Stderr, kfake.LogLevelWarn)),
	}
	if len(read.Requests) > 0 {
		limits, err := limitVersions(read.Requests)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		options = append(options, kfake.MaxVersions(limits))
	}
	cluster, err := kfake.NewCluster(options...)
	if err != nil {
		return err
	}
	defer cluster.Close()
	if newest, ok := read.Requests["ApiVersions"]; ok && read.ClosesOnNewer {
		cluster.ControlKey(apiVersionsKey, func(request kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			if request.GetVersion() > newest {
				return nil, errTooNew, true // kfake closes the connection on an error
			}
			return nil, nil, false
		})
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, os.Interrupt, syscall.SIGTERM)
	<-ended
	return nil
}

func readTable(path string) (table, error) {
	var read table
	text, err := os.ReadFile(path)
	if err != nil {
		return read, err
	}
	if err := json.Unmarshal(text, &read); err != nil {
		return read, fmt.Errorf("%s: %w", path, err)
	}
	return read, nil
}

func limitVersions(requests map[string]int16) (*kversion.Versions, error) {
	keys := make(map[string]int16)
	for key := int16(0); key <= kmsg.MaxKey; key++ {
		keys[kmsg.NameForKey(key)] = key
	}
	limits := new(kversion.Versions)
	for name, newest := range requests {
		key, ok := keys[name]
		if !ok {
			return nil, fmt.Errorf("there is no request %q in Kafka's protocol", name)
		}
		limits.SetMaxKeyVersion(key, newest)
	}
	return limits, nil
}
