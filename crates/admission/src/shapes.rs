//! Equal requests are evaluated once: a shape stands for all Workloads that ask for the same.

use std::sync::Arc;

use gangway_model::Requests;
use gangway_model::constraints::Constraints;
use gangway_model::workload::Workload;
use rustc_hash::FxHashMap;

/// Names a shape as long as a Workload has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ShapeId(u32);

/// All that decides whether a Workload fits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Shape {
    priority: i32,
    pod_sets: Vec<(i32, Requests, Arc<Constraints>)>,
}

/// The shapes in use.
#[derive(Debug, Default)]
pub(crate) struct Shapes {
    ids: FxHashMap<Arc<Shape>, ShapeId>,
    used: FxHashMap<ShapeId, (Arc<Shape>, usize)>,
    next: u32,
}

impl Shapes {
    /// The shape of a Workload, which has to be [released](Self::release) when the Workload leaves.
    pub(crate) fn acquire(&mut self, workload: &Workload) -> ShapeId {
        let pod_sets = workload.pod_sets.iter().map(|p| (p.count, p.requests.clone(), p.constraints.clone()));
        let shape = Shape { priority: workload.priority, pod_sets: pod_sets.collect() };
        if let Some(id) = self.ids.get(&shape) {
            if let Some((_, users)) = self.used.get_mut(id) {
                *users += 1;
            }
            return *id;
        }
        let id = ShapeId(self.next);
        self.next = self.next.wrapping_add(1);
        let shape = Arc::new(shape);
        self.ids.insert(shape.clone(), id);
        self.used.insert(id, (shape, 1));
        id
    }

    /// A Workload of this shape has left.
    pub(crate) fn release(&mut self, id: ShapeId) {
        let Some((shape, users)) = self.used.get_mut(&id) else { return };
        *users -= 1;
        if *users == 0 {
            self.ids.remove(&*shape.clone());
            self.used.remove(&id);
        }
    }

    /// How many shapes are in use.
    pub(crate) fn len(&self) -> usize {
        self.used.len()
    }
}
