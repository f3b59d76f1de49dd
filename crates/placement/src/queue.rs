//! Who is next? Pending pods in order, grouped by shape.
//!
//! Pods that ask for the same and accept the same nodes share a *shape* and one line. If the first of a
//! line fits nowhere, none of them does: the line is *parked* and nobody in it is looked at again until
//! something that could help the shape changes. A line that is not parked is *ready*, and its first pod
//! competes with the first pods of the other ready lines. Pods whose write failed serve a *backoff* apart.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gangway_model::{Timestamp, Uid};
use rustc_hash::FxHashMap;

use crate::explain::Diagnosis;

use crate::shapes::Shape;

/// The order of pending pods: higher priority first, then older, then by uid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    priority: Reverse<i32>,
    created_at: Timestamp,
    uid: Uid,
}

impl Position {
    pub(crate) fn new(priority: i32, created_at: Timestamp, uid: Uid) -> Self {
        Self { priority: Reverse(priority), created_at, uid }
    }

    pub(crate) fn uid(&self) -> &Uid {
        &self.uid
    }
}

/// Names a line; never used again once its line is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ShapeId(u64);

/// All pending pods of one shape.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) shape: Arc<Shape>,
    pub(crate) pods: BTreeSet<Position>,
    /// Why nobody here fits anywhere; `None` while the line is ready.
    pub(crate) parked: Option<Arc<Diagnosis>>,
    /// The diagnosis that the pods outside `unreported` were last told.
    reported: Option<Arc<Diagnosis>>,
    /// Who has not been told `reported` yet.
    pub(crate) unreported: BTreeSet<Position>,
}

/// Every pending pod that may be placed, in one line or in backoff.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    lines: BTreeMap<ShapeId, Line>,
    /// Looked up, never walked.
    ids: FxHashMap<Arc<Shape>, ShapeId>,
    last_id: u64,
    /// First pod of every ready line.
    ready: BTreeSet<(Position, ShapeId)>,
    parked: BTreeSet<ShapeId>,
    /// Parked lines with somebody to tell.
    unreported: BTreeSet<ShapeId>,
    backoff: BTreeSet<(Timestamp, Uid)>,
    appeared: bool,
}

impl Queue {
    /// Puts a pod in the line of its shape.
    pub(crate) fn add(&mut self, shape: &Arc<Shape>, position: Position) -> ShapeId {
        let id = self.line_of(shape);
        self.unfile(id);
        if let Some(line) = self.lines.get_mut(&id) {
            line.unreported.insert(position.clone());
            line.pods.insert(position);
        }
        self.file(id);
        self.appeared = true;
        id
    }

    /// Takes a pod out of its line; the line ends with its last pod.
    pub(crate) fn remove(&mut self, id: ShapeId, position: &Position) {
        self.unfile(id);
        let Some(line) = self.lines.get_mut(&id) else { return };
        line.pods.remove(position);
        line.unreported.remove(position);
        if line.pods.is_empty() {
            let shape = Arc::clone(&line.shape);
            self.lines.remove(&id);
            self.ids.remove(&shape);
        } else {
            self.file(id);
        }
    }

    /// The pod whose turn it is.
    pub(crate) fn first_ready(&self) -> Option<(ShapeId, &Position, &Arc<Shape>)> {
        let (position, id) = self.ready.first()?;
        let line = self.lines.get(id)?;
        Some((*id, position, &line.shape))
    }

    /// Nobody in this line fits anywhere, and here is why.
    pub(crate) fn park(&mut self, id: ShapeId, diagnosis: Diagnosis) {
        self.unfile(id);
        if let Some(line) = self.lines.get_mut(&id) {
            if line.reported.as_deref() != Some(&diagnosis) {
                line.reported = Some(Arc::new(diagnosis));
                line.unreported = line.pods.clone();
            }
            line.parked.clone_from(&line.reported);
        }
        self.file(id);
    }

    /// Something changed that may help this line.
    pub(crate) fn wake(&mut self, id: ShapeId) {
        self.unfile(id);
        if let Some(line) = self.lines.get_mut(&id) {
            self.appeared |= line.parked.take().is_some();
        }
        self.file(id);
    }

    /// The lines that wait, with their shapes.
    pub(crate) fn parked(&self) -> impl Iterator<Item = (ShapeId, &Arc<Shape>)> {
        self.parked.iter().filter_map(|id| Some((*id, &self.lines.get(id)?.shape)))
    }

    /// The next pod that was not told yet why it waits.
    pub(crate) fn pop_unreported(&mut self) -> Option<(Position, Arc<Diagnosis>)> {
        let id = *self.unreported.first()?;
        let line = self.lines.get_mut(&id)?;
        let position = line.unreported.pop_first();
        let diagnosis = line.parked.clone();
        if line.unreported.is_empty() {
            self.unreported.remove(&id);
        }
        position.zip(diagnosis)
    }

    /// Keeps a pod away until `until`.
    pub(crate) fn back_off(&mut self, until: Timestamp, uid: Uid) {
        self.backoff.insert((until, uid));
    }

    /// The pod no longer serves a backoff.
    pub(crate) fn end_backoff(&mut self, until: Timestamp, uid: &Uid) {
        self.backoff.remove(&(until, uid.clone()));
    }

    /// Takes out one pod whose backoff ended at or before `now`.
    pub(crate) fn pop_expired(&mut self, now: Timestamp) -> Option<Uid> {
        if self.backoff.first()?.0 > now {
            return None;
        }
        self.backoff.pop_first().map(|(_, uid)| uid)
    }

    /// When the first backoff ends.
    pub(crate) fn next_expiry(&self) -> Option<Timestamp> {
        self.backoff.first().map(|(until, _)| *until)
    }

    /// Something to report appeared outside the lines.
    pub(crate) fn note_appeared(&mut self) {
        self.appeared = true;
    }

    /// Whether something poppable appeared since this was last asked.
    pub(crate) fn take_appeared(&mut self) -> bool {
        std::mem::take(&mut self.appeared)
    }

    pub(crate) fn line(&self, id: ShapeId) -> Option<&Line> {
        self.lines.get(&id)
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = (ShapeId, &Line)> {
        self.lines.iter().map(|(id, line)| (*id, line))
    }

    pub(crate) fn backoffs(&self) -> impl Iterator<Item = &(Timestamp, Uid)> {
        self.backoff.iter()
    }

    pub(crate) fn is_ready(&self, id: ShapeId, first: &Position) -> bool {
        self.ready.contains(&(first.clone(), id))
    }

    pub(crate) fn ready_count(&self) -> usize {
        self.ready.len()
    }

    fn line_of(&mut self, shape: &Arc<Shape>) -> ShapeId {
        if let Some(id) = self.ids.get(shape) {
            return *id;
        }
        self.last_id += 1;
        let id = ShapeId(self.last_id);
        let line = Line {
            shape: Arc::clone(shape),
            pods: BTreeSet::new(),
            parked: None,
            reported: None,
            unreported: BTreeSet::new(),
        };
        self.lines.insert(id, line);
        self.ids.insert(Arc::clone(shape), id);
        id
    }

    /// Takes a line out of the indexes, before it changes.
    fn unfile(&mut self, id: ShapeId) {
        let Some(line) = self.lines.get(&id) else { return };
        if let Some(first) = line.pods.first() {
            self.ready.remove(&(first.clone(), id));
        }
        self.parked.remove(&id);
        self.unreported.remove(&id);
    }

    /// Puts a line into the indexes that it belongs to, after it changed.
    fn file(&mut self, id: ShapeId) {
        let Some(line) = self.lines.get(&id) else { return };
        if line.parked.is_none() {
            self.ready.extend(line.pods.first().map(|first| (first.clone(), id)));
            return;
        }
        self.parked.insert(id);
        if !line.unreported.is_empty() {
            self.unreported.insert(id);
        }
    }
}
