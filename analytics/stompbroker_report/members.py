"""How the members of groups and queues shared what they had.

Takes the figures of all levels, which are computed anyway. A subscription is a group if any of its records names a
member; those that name none were settled without one, or by a release that did not know members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from stompbroker_report.levels import Level
from stompbroker_report.schemas import MARTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def members(all_figures: DataFrame) -> DataFrame:
    """One row per date, group and member that had a delivery of it; a share is one of what members had."""
    group = Window.partitionBy("dt", "subscription")
    is_member = F.col("member").isNotNull()
    failed = F.col("outcome_dead") + F.col("outcome_discarded")
    of_members = F.sum(F.when(is_member, F.col("deliveries"))).over(group)
    least = F.min(F.when(is_member, F.col("deliveries"))).over(group)
    return (
        all_figures.where(F.col("level") == int(Level.MEMBER))
        .withColumns(
            {
                "failed": failed,
                "place": F.row_number().over(group.orderBy(~is_member, F.desc("deliveries"), "member")),
                "share_rate": F.col("deliveries") / of_members,
                "group_members": F.count("member").over(group),
                "group_deliveries": of_members,
                "group_failed": F.sum(F.when(is_member, failed)).over(group),
                "group_least_share_rate": least / of_members,
                "group_without_member": F.sum(F.when(is_member, 0).otherwise(F.col("deliveries"))).over(group),
            }
        )
        .where(is_member)
        .select(*MARTS["members"].names)
    )
