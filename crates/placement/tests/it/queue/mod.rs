//! The scheduling queue through its contract alone.
//!
//! What is expected here and differs from the reference, by decision:
//!
//! | decision | the reference | expected here | shown by |
//! |---|---|---|---|
//! | 26 | the gate has one name | two names | the feature gates of the configuration |
//! | 27 | a penalty ends with the second after it | exactly, with the gate on and off | `facts::penalties_of_a_pod_that_is_rejected_again_and_again` |
//! | 27 | penalties after errors wait in windows of a second | by their exact end | `sentences::penalties_are_as_long_as_the_failures_say_and_end_exactly` |
//! | 28 | an error wakes whoever waits for the queue | nothing that cannot be popped does | `traps::trap_16…` |
//! | 29 | a rejected group backs off as after an error | there are no groups yet | |
//! | 30 | without nodes a pod is tried again and again | it waits for a node | `behaviour::without_nodes_a_pod_waits_for_one` |
//! | 31 | a tie is broken by chance | by pod, node and seed | `properties::equal_events_give_equal_decisions` |
//! | | a pod that changes while it backs off is not asked about again | it is | `traps::trap_17…` |
//! | | a nomination by somebody else does not wake the pod | it does | `nominations` |

mod facts;
mod judge;
mod model;
mod random;
mod run;
mod sentences;
mod traps;
mod turns;
