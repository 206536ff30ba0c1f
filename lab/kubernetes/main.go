// kubernetes is the part of Kubernetes 1.33 that tests need, in one program: etcd, the API server, and the controllers
// of Deployments, ReplicaSets and StatefulSets. There is no scheduler and no kubelet.
//
//	kubernetes etcd [flags of etcd]
//	kubernetes kube-apiserver [flags of kube-apiserver]
//	kubernetes controllers KUBECONFIG
//
// Each runs until SIGTERM.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/statefulset"
)

const (
	workers = 2
	burst   = 500            // pods that a ReplicaSet makes at once, as in kube-controller-manager
	resync  = 12 * time.Hour // as in kube-controller-manager
)

var errUsage = errors.New("usage: kubernetes etcd | kube-apiserver | controllers KUBECONFIG")

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	switch {
	case len(arguments) > 0 && arguments[0] == "etcd":
		etcdmain.Main(arguments)
		return nil
	case len(arguments) > 0 && arguments[0] == "kube-apiserver":
		command := apiserver.NewAPIServerCommand()
		command.SetArgs(arguments[1:])
		os.Exit(cli.Run(command))
		return nil
	case len(arguments) == 2 && arguments[0] == "controllers":
		return runControllers(arguments[1])
	}
	return errUsage
}

func runControllers(kubeconfig string) error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 200, 400
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	shared := informers.NewSharedInformerFactory(client, resync)
	apps, core := shared.Apps().V1(), shared.Core().V1()
	deployments, err := deployment.NewDeploymentController(
		ctx, apps.Deployments(), apps.ReplicaSets(), core.Pods(), client)
	if err != nil {
		return err
	}
	replicaSets := replicaset.NewReplicaSetController(ctx, apps.ReplicaSets(), core.Pods(), client, burst)
	statefulSets := statefulset.NewStatefulSetController(
		ctx, core.Pods(), apps.StatefulSets(), core.PersistentVolumeClaims(), apps.ControllerRevisions(), client)
	shared.Start(ctx.Done())
	go deployments.Run(ctx, workers)
	go replicaSets.Run(ctx, workers)
	go statefulSets.Run(ctx, workers)
	<-ctx.Done()
	return nil
}
