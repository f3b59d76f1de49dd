//! Nodes that exist only in the API. Their pods do what annotations say, so that a cluster of any size fits on a desk.
//!
//! | annotation of the pod | meaning | default |
//! |---|---|---|
//! | `fake.gangway.dev/ready-after` | from start to Ready: `2s`, `500ms`, or `never` | `0s` |
//! | `fake.gangway.dev/run-for` | from Ready to the end, or `forever` | `1s`; `forever` with `restartPolicy: Always` |
//! | `fake.gangway.dev/fail` | `true` or an exit code: the end is a failure | success |
//! | `fake.gangway.dev/terminate-after` | from the deletion to the end of a running pod | `0s` |
//!
//! A pod that is never ready never ends by itself. Containers of fake pods are not restarted: a failure fails the pod whatever its
//! restart policy. A value that cannot be read fails the pod with a message that names it. A node that vanishes
//! ([`FakeNode::vanish_after`]) takes its Node object with it, and nobody answers for its pods any more.

mod behaviour;
mod nodes;
mod player;

pub use nodes::{FakeNode, ParseError, parse_nodes};
pub use player::run_fake_nodes;
