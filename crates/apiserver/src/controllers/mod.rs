//! What a cluster would bring: the Job controller and garbage collection, as plain API clients.

pub mod garbage;
pub mod jobs;
