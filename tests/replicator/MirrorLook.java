import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.MessageFormatter;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.connect.mirror.*;

/** What Kafka's own connect-mirror-client sees of a cluster; `name=value`, a line each.
 *  Arguments: bootstrap, alias of the source, a group (`-`: none), then `key=value` of the client's settings.
 *  Or `read`, bootstrap, a topic, the class of a formatter: its records as Kafka's console consumer prints them. */
public class MirrorLook {
    public static void main(String[] given) throws Exception {
        if (given[0].equals("read")) read(given[1], given[2], given[3]);
        else look(given);
    }

    static void look(String[] given) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", given[0]);
        for (int at = 3; at < given.length; at++) settings.put(given[at].split("=", 2)[0], given[at].split("=", 2)[1]);
        String alias = given[1];
        try (MirrorClient client = new MirrorClient(settings)) {
            say("upstreamClusters", client.upstreamClusters());
            say("remoteTopics", client.remoteTopics(alias));
            say("heartbeatTopics", client.heartbeatTopics());
            say("checkpointTopics", client.checkpointTopics());
            System.out.println("replicationHops=" + client.replicationHops(alias));
        }
        if (given[2].equals("-")) return;
        Map<TopicPartition, OffsetAndMetadata> found =
            RemoteClusterUtils.translateOffsets(settings, alias, given[2], Duration.ofSeconds(30));
        for (var each : found.entrySet())
            System.out.println("translated " + each.getKey() + "=" + each.getValue().offset());
    }

    static void say(String name, Collection<String> values) {
        System.out.println(name + "=" + String.join(",", new TreeSet<>(values)));
    }

    static void read(String bootstrap, String topic, String formatter) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap);
        var bytes = new ByteArrayDeserializer();
        MessageFormatter shows = (MessageFormatter) Class.forName(formatter).getDeclaredConstructor().newInstance();
        try (var consumer = new KafkaConsumer<byte[], byte[]>(settings, bytes, bytes)) {
            var place = new TopicPartition(topic, 0);
            consumer.assign(List.of(place));
            consumer.seekToBeginning(List.of(place));
            long end = consumer.endOffsets(List.of(place)).get(place);
            while (consumer.position(place) < end)
                for (var record : consumer.poll(Duration.ofSeconds(1))) shows.writeTo(record, System.out);
        }
    }
}
