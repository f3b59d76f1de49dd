//! Short names inside the scheduler. Names and uids are looked up once, at the door.

/// A pod that is known; free for another one when the pod is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodId(pub u32);

/// What makes pods equal to every plugin; free for another one when the last such pod is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShapeId(pub u32);

/// A node that is there, or that has pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIndex(pub u32);

impl PodId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

impl ShapeId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

impl NodeIndex {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}
