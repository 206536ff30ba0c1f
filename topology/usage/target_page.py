"""What one target cluster needs for the flows into it, as blocks of a page: brokers, workers, money."""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.planning.page_blocks import Cell, Heading, PageBlock, Sentence, Table
from watershed.topology.rounded_amounts import (
    render_counted_noun,
    render_first_names,
    render_number,
    render_rounded_rate,
    render_rounded_size,
)
from watershed.topology.usage.estimate import TargetUsage, UsageEstimate
from watershed.topology.usage.sizing import PARTITIONS_A_TARGET, FleetSizing, SizingRow


def build_target_section(target: TargetUsage, estimate: UsageEstimate) -> Iterator[PageBlock]:
    """Brokers, workers and money of one target."""
    yield Heading(2, f"What {target.alias} needs")
    flows = render_first_names(target.flows) or "no flow with a history"
    yield Sentence(f"For {flows}, at the peak, with {render_counted_noun(target.sizing.replication, 'replica')}.")
    if target.unknown:
        yield Sentence(
            f"Without bytes in, so not in the numbers: {render_first_names(target.unknown)}. More will be needed.",
            "warning",
        )
    if not target.exact:
        yield Sentence(
            "The flows' histories are of different times, so their peaks were added as if they came together.", "note"
        )
    yield Table(
        ("Limit", "Needed", "A broker takes", "Brokers"), tuple(_build_sizing_row(row) for row in target.sizing.rows)
    )
    headroom = f"{estimate.sources.broker.headroom:.0%} of each broker stay free."
    if target.sizing.brokers is None:
        yield Sentence("How many brokers it takes is not known.", "warning")
    else:
        yield Sentence(f"At least {render_counted_noun(target.sizing.brokers, 'broker')}. {headroom}")
    if any(row.needed is not None and row.of_broker is None for row in target.sizing.rows):
        yield Sentence(
            "A limit that the file's `broker` does not say counts for nothing: say what a broker takes.", "note"
        )
    yield from _tell_fleet(target.fleet)
    yield from _tell_money(target, estimate)


def _build_sizing_row(row: SizingRow) -> tuple[Cell, ...]:
    def say(amount: float | None, unknown: str) -> Cell:
        if amount is None:
            return Cell(unknown, number=True)
        if row.limit == "replicas":
            return Cell(f"{amount:,.0f}", number=True)
        return Cell((render_rounded_size if row.limit == "disk" else render_rounded_rate)(amount), number=True)

    return (
        Cell(row.limit, note=_SIZING_NOTES.get(row.limit, "")),
        say(row.needed, "unknown"),
        say(row.of_broker, "not said"),
        Cell(render_number(row.brokers), number=True),
    )


_SIZING_NOTES = {
    "bytes in": "peak of what producers write, once for each replica",
    "bytes out": "copies to other brokers, and the peak of what consumers read at the source",
    "disk": "leaders' logs as they are now, once for each replica",
}


def _tell_fleet(fleet: FleetSizing) -> Iterator[PageBlock]:
    yield Heading(3, "Fleet")
    if fleet.workers is None:
        yield Sentence("How many workers it takes is not known: neither traffic nor partitions are.", "warning")
        return
    reasons = []
    if fleet.by_cpu is not None and fleet.cpu is not None:
        reasons.append(f"{fleet.by_cpu} for the peak ({fleet.cpu:.2f} cores of processor time)")
    if fleet.by_partitions is not None:
        reasons.append(f"{fleet.by_partitions} for the partitions")
    yield Sentence(f"{render_counted_noun(fleet.workers, 'worker')}: {', '.join(reasons)}.")
    if not fleet.records_known:
        yield Sentence(
            "Records a second are not known: small records need more processor time than is shown.", "warning"
        )
    if fleet.beyond:
        yield Sentence(
            f"That is more than one fleet serves (16 workers, {PARTITIONS_A_TARGET:,} partitions on a "
            "target): take more "
            "target clusters, see docs/scale.md.",
            "warning",
        )


def _tell_money(target: TargetUsage, estimate: UsageEstimate) -> Iterator[PageBlock]:
    money, prices = target.money, estimate.prices
    yield Heading(3, "Money")
    rows = (
        ("Network, first copy", money.copy, prices.egress_per_gib, "egress_per_gib"),
        ("Network, each 30 days after", money.egress, prices.egress_per_gib, "egress_per_gib"),
        ("Disks of the target, each 30 days", money.storage, prices.storage_per_gib_month, "storage_per_gib_month"),
        ("Brokers of the target, each 30 days", money.brokers, prices.broker_month, "broker_month"),
    )
    said = [row for row in rows if row[2] is not None]
    # a limit of which nothing is known may take more brokers, so what is known is a lower bound
    bounds = {"broker_month": "at least "} if any(row.brokers is None for row in target.sizing.rows) else {}
    if said:
        yield Table(
            ("What", "Costs", "At"),
            tuple(
                (
                    Cell(what),
                    Cell(
                        ("" if amount is None else bounds.get(key, "")) + render_money(amount, prices.currency),
                        number=True,
                    ),
                    Cell(f"{price:g}", number=True),
                )
                for what, amount, price, key in said
            ),
        )
    missing = tuple(dict.fromkeys(key for _, _, price, key in rows if price is None))
    if missing:
        keys = ", ".join(f"prices.{key}" for key in missing)
        yield Sentence(f"No price is given for the rest ({keys}), so it is not reckoned.", "note")


def render_money(amount: float | None, currency: str) -> str:
    """`1,200.50 EUR`; `unknown` where nobody knows."""
    return "unknown" if amount is None else f"{amount:,.2f} {currency}".rstrip()
