// A sample application of Kafka Streams with state: it counts records by a bucket of their key.
//
// `java -cp JARS KeyCounts.java BOOTSTRAP APPLICATION_ID INPUT OUTPUT STATE_DIR classic|streams COMMIT_MS`
// The bucket is another key than the record's, so records pass a repartition topic; counts are kept in a store with a
// changelog. exactly_once_v2, without a cache: each record makes one record in the repartition topic, one in the
// changelog and one in OUTPUT (bucket, count as decimal digits). It ends in good order at SIGTERM.

import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

public final class KeyCounts {
    private static final int BUCKETS = 40;

    static String bucket(byte[] key) {
        int sum = 0;
        for (byte each : key) {
            sum += each & 0xff;
        }
        return "bucket-" + sum % BUCKETS;
    }

    public static void main(String[] args) throws InterruptedException {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, args[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, args[4]);
        settings.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, args[5]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, args[6]);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);  // of one broker
        settings.put("auto.offset.reset", "earliest");
        if (args[5].equals("classic")) {  // the other protocol has it at the broker
            settings.put("session.timeout.ms", 10_000);  // by default an instance that closes does not leave its group
        }

        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(args[2], Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
            .selectKey((key, value) -> bucket(key))
            .groupByKey(Grouped.with("counts", Serdes.String(), Serdes.ByteArray()))
            .count(Materialized.as("counts"))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(args[3], Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        CountDownLatch ended = new CountDownLatch(1);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            ended.countDown();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(20))));
        streams.setStateListener((now, before) -> System.out.println("state " + now));
        streams.start();
        ended.await();
        System.exit(1);
    }
}
