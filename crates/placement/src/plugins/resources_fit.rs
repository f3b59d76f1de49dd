//! Is there room for what a pod asks for, and where should room be left?

use gangway_model::ResourceName;
use gangway_model::scheduling::{FitSettings, ScoringStrategy, ShapePoint};

use super::{MAX_SCORE, node_change};
use crate::cluster::{Cluster, Column, Columns, Node};
use crate::framework::{Actions, Change, ClusterEvent, Happening, Objection, Plugin, PluginId, Resource};
use crate::shapes::Shape;

/// Scores in a configuration go up to this.
const MAX_CONFIGURED_SCORE: i64 = 10;

#[derive(Debug)]
pub(crate) struct ResourcesFit {
    settings: FitSettings,
    /// The resources by which nodes are ranked, with their weights.
    ranked: Vec<(Column, i64)>,
    /// Columns that are not compared.
    ignored: Vec<Column>,
}

/// The resources of which the node has less than the pod asks for.
pub(crate) fn shortages(shape: &Shape, node: &Node) -> impl Iterator<Item = (Column, i64)> {
    shape.needs.iter().copied().filter(|(column, amount)| i128::from(*amount) > node.free(*column))
}

/// How many pods of this shape the node would take besides `usage`, by their number and what they ask for.
pub(crate) fn room_for(shape: &Shape, node: &Node) -> i64 {
    let fits = |(column, amount): &(Column, i64)| {
        i64::try_from((node.free(*column) / i128::from(*amount)).max(0)).unwrap_or(i64::MAX)
    };
    shape.needs.iter().map(fits).fold(node.free_pods().max(0), i64::min)
}

impl ResourcesFit {
    pub(crate) fn new(settings: &FitSettings, columns: &mut Columns) -> Self {
        let ranked =
            settings.resources.iter().map(|(name, weight)| (columns.column(name), *weight)).collect();
        let ignored = settings.ignored_resources.iter().map(|name| columns.column(name)).collect();
        Self { settings: settings.clone(), ranked, ignored }
    }

    fn is_ignored(&self, column: Column) -> bool {
        self.ignored.contains(&column)
    }

    fn verdict(&self, shape: &Shape, node: &Node) -> Option<Objection> {
        let compared = |(column, _): &(Column, i64)| !self.is_ignored(*column);
        let lacks_room = node.free_pods() < 1 || shortages(shape, node).any(|need| compared(&need));
        if !lacks_room {
            return None;
        }
        let never = |(column, amount): &(Column, i64)| *amount > node.allocatable(*column);
        let is_hopeless = shape.needs.iter().filter(|need| compared(need)).any(never);
        Some(if is_hopeless { Objection::NeverEnough } else { Objection::Resources })
    }

    /// What is taken of a resource with the pod, and what there is; none if the resource does not count.
    fn asked_and_offered(&self, shape: &Shape, node: &Node, column: Column) -> Option<(i128, i64)> {
        let offered = node.allocatable(column);
        let asked = match column {
            Column::CPU => node.usage.scored_cpu_millis + i128::from(shape.scored_cpu_millis),
            Column::MEMORY => node.usage.scored_memory_bytes + i128::from(shape.scored_memory_bytes),
            _ if shape.need(column) == 0 => return None,
            _ => node.usage.taken(column) + i128::from(shape.need(column)),
        };
        (offered > 0).then_some((asked, offered))
    }

    fn rank(&self, shape: &Shape, node: &Node) -> i64 {
        let (mut sum, mut weights) = (0, 0);
        for (column, weight) in &self.ranked {
            let Some((asked, offered)) = self.asked_and_offered(shape, node, *column) else { continue };
            let score = match &self.settings.strategy {
                ScoringStrategy::LeastAllocated => percent(i128::from(offered) - asked, offered),
                ScoringStrategy::MostAllocated => percent(asked.min(i128::from(offered)), offered),
                ScoringStrategy::RequestedToCapacityRatio(points) => {
                    let used = if asked > i128::from(offered) { 100 } else { percent(asked, offered) };
                    let score = on_line(points, used);
                    // What is worth nothing does not count.
                    if score == 0 {
                        continue;
                    }
                    score
                }
            };
            sum += score * weight;
            weights += weight;
        }
        match &self.settings.strategy {
            _ if weights == 0 => 0,
            ScoringStrategy::RequestedToCapacityRatio(_) => rounded(sum, weights),
            _ => sum / weights,
        }
    }
}

/// A part in hundredths of the whole, 0 if it is negative.
fn percent(part: i128, whole: i64) -> i64 {
    match (i64::try_from(part), whole) {
        (Ok(part), 1..) if part > 0 => match part.checked_mul(MAX_SCORE) {
            Some(product) => product / whole,
            None => i64::try_from(i128::from(part) * i128::from(MAX_SCORE) / i128::from(whole))
                .unwrap_or(MAX_SCORE),
        },
        _ => 0,
    }
}

fn rounded(sum: i64, parts: i64) -> i64 {
    (2 * sum + parts).div_euclid(2 * parts)
}

/// The height of a line through these points, in hundredths.
fn on_line(points: &[ShapePoint], at: i64) -> i64 {
    let height = |point: &ShapePoint| point.score * (MAX_SCORE / MAX_CONFIGURED_SCORE);
    match points.iter().position(|point| at <= point.utilization) {
        Some(0) => points.first().map_or(0, height),
        None => points.last().map_or(0, height),
        Some(right) => {
            let (left, right) = (&points[right - 1], &points[right]);
            let run = (right.utilization - left.utilization).max(1);
            height(left) + (height(right) - height(left)) * (at - left.utilization) / run
        }
    }
}

impl Plugin for ResourcesFit {
    fn id(&self) -> PluginId {
        PluginId::NodeResourcesFit
    }

    fn registrations(&self) -> &'static [ClusterEvent] {
        const {
            &[
                ClusterEvent {
                    resource: Resource::AssignedPod,
                    action: Actions::DELETE.or(Actions::UPDATE_POD_SCALE_DOWN),
                },
                ClusterEvent {
                    resource: Resource::Node,
                    action: Actions::ADD.or(Actions::UPDATE_NODE_ALLOCATABLE),
                },
                ClusterEvent { resource: Resource::TargetPod, action: Actions::UPDATE_POD_SCALE_DOWN },
            ]
        }
    }

    fn may_help(&self, shape: &Shape, happening: &Happening, cluster: &Cluster) -> bool {
        let asks_for = |name: &str| cluster.columns.find(name).is_some_and(|column| shape.need(column) > 0);
        if let Some((old, new)) = node_change(happening) {
            let grew = |name: &ResourceName| {
                old.is_none_or(|old| new.allocatable.get(name.as_str()) > old.allocatable.get(name.as_str()))
            };
            let offered = |column: &Column| cluster.columns.name(*column);
            let enough =
                shape.needs.iter().filter(|(column, _)| !self.is_ignored(*column)).all(|(column, amount)| {
                    offered(column).is_some_and(|n| new.allocatable.get(n.as_str()) >= *amount)
                });
            let mut wanted = shape.needs.iter().filter_map(|(column, _)| offered(column));
            return enough
                && (old.is_none() || wanted.any(grew) || grew(&gangway_model::PODS_RESOURCE.into()));
        }
        match &happening.change {
            // Somebody asks for less: of something that the pod asks for too.
            Change::Pod { old: Some(old), new: Some(new), .. }
                if happening.event.resource == Resource::AssignedPod =>
            {
                let shrank = |(name, amount): (&ResourceName, i64)| {
                    asks_for(name.as_str()) && new.demands.requests.get(name.as_str()) < amount
                };
                old.demands.requests.iter().any(shrank)
            }
            _ => true,
        }
    }

    fn filter(&self, shape: &Shape, nodes: &[&Node], verdicts: &mut [Option<Objection>]) {
        for (node, verdict) in nodes.iter().zip(verdicts) {
            if verdict.is_none() {
                *verdict = self.verdict(shape, node);
            }
        }
    }

    fn has_opinion(&self, _: &Shape) -> bool {
        true
    }

    fn score(&self, shape: &Shape, nodes: &[&Node], scores: &mut [i64]) {
        for (node, score) in nodes.iter().zip(scores) {
            *score = self.rank(shape, node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_followed_between_its_points() {
        let point = |utilization, score| ShapePoint { utilization, score };
        let line = [point(20, 2), point(70, 10), point(90, 0)];
        let table = [(0, 20), (20, 20), (45, 60), (70, 100), (80, 50), (90, 0), (100, 0)];
        for (at, expected) in table {
            assert_eq!(on_line(&line, at), expected, "at {at}");
        }
    }

    #[test]
    fn parts_are_never_negative_and_never_overflow() {
        assert_eq!(percent(-5, 10), 0);
        assert_eq!(percent(5, 0), 0);
        assert_eq!(percent(i128::from(i64::MAX), i64::MAX), 100);
        assert_eq!(percent(i128::from(i64::MAX) / 2, i64::MAX), 49);
    }
}
