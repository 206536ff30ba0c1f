"""The estimate as a JSON document, `watershed/usage/v1`. `null` is what nobody knows, never zero."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from watershed.topology.planning.copy_estimate import CopyEstimate
from watershed.topology.usage.estimate import ClusterUsage, FlowUsage, TargetUsage, TopicUsage, UsageEstimate
from watershed.topology.usage.history import UsageMetric, UsagePeriod
from watershed.topology.usage.series_summary import SeriesSummary

USAGE_SCHEMA: Final = "watershed/usage/v1"


def encode_usage(estimate: UsageEstimate) -> str:
    """Times in seconds since 1970, sizes in bytes, rates a second, money in the currency of the prices."""
    return (
        json.dumps(build_usage_document(estimate), indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
    )


def build_usage_document(estimate: UsageEstimate) -> dict[str, Any]:
    """The document as values of JSON, so that another report can take it in."""
    return {
        "schema": USAGE_SCHEMA,
        "topology": estimate.topology,
        "prices": asdict(estimate.prices),
        "broker": asdict(estimate.sources.broker),
        "link": estimate.sources.link,
        "clusters": {each.history.alias: _build_cluster(each) for each in estimate.clusters},
        "without_source": list(estimate.without_source),
        "flows": {each.flow.id: _build_flow(each) for each in estimate.flows},
        "unmeasured": list(estimate.unmeasured),
        "targets": {each.alias: _build_target(each) for each in estimate.targets},
    }


def _build_cluster(each: ClusterUsage) -> dict[str, Any]:
    history = each.history
    return {
        "source": history.source,
        "failure": history.failure or None,
        "period": _build_period(history.period),
        "brokers": history.brokers,
        "on_disks": history.on_disks,
        "resets": history.resets,
        "partial_intervals": history.partial,
        "notes": list(history.notes),
        "costs": None if history.costs is None else [asdict(cost) for cost in history.costs],
        "rates": _build_rates(each.totals),
        "stored": each.stored,
        "partitions": each.partitions,
        "kept_s": each.kept_s,
        "growth": each.growth,
        "topics": {topic.name: _build_topic(topic) for topic in each.topics},
    }


def _build_topic(topic: TopicUsage) -> dict[str, Any]:
    return {"rates": _build_rates(topic.rates), "stored": topic.stored, "partitions": topic.partitions}


def _build_flow(each: FlowUsage) -> dict[str, Any]:
    return {
        "source": each.flow.source,
        "target": each.flow.target,
        "state": each.flow.state,
        "by_topic": each.by_topic,
        "topics": [topic.name for topic in each.topics],
        "without_history": list(each.unseen),
        "rates": _build_rates(each.rates),
        "partitions": each.partitions,
        "copy": None if each.copy is None else _build_copy(each.copy, sized=each.sized),
        "lag": None if each.lag is None else asdict(each.lag),
        "quietest_hour": each.quietest_hour,
        "period": _build_period(each.period),
    }


def _build_copy(copy: CopyEstimate, *, sized: bool) -> dict[str, Any]:
    return {
        "rate": copy.copy_rate,
        "limited_by": copy.limited_by,
        "bytes": copy.bytes if sized else None,
        "topics_without_size": copy.unsized,
        "copy_s": copy.copy_s if sized else None,
        "catch_up_s": copy.catch_up_s if sized else None,
    }


def _build_target(each: TargetUsage) -> dict[str, Any]:
    return {
        "flows": list(each.flows),
        "flows_without_history": list(each.unknown),
        "exact": each.exact,
        "need": asdict(each.need),
        "brokers": each.sizing.brokers,
        "limits": [asdict(row) for row in each.sizing.rows],
        "fleet": asdict(each.fleet),
        "money": asdict(each.money),
    }


def _build_rates(rates: Mapping[UsageMetric, SeriesSummary]) -> dict[str, Any]:
    return {metric: asdict(summary) for metric, summary in rates.items()}


def _build_period(period: UsagePeriod) -> dict[str, int]:
    return {**asdict(period), "intervals": period.intervals}
