"""Alert rules and dashboards for the metrics of `topology.metric_catalogue`."""
