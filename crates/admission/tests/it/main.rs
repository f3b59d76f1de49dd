//! The engine from the outside: tables of its rules, and properties over random traces with faults.

mod build;
mod explaining;
mod fallback_table;
mod flavor_table;
mod fungibility_table;
mod hold_table;
mod invariants;
mod lifecycle_table;
mod operations;
mod outcomes;
mod play;
mod preemption_table;
mod properties;
mod quota_model;
mod quota_scenarios;
mod quota_table;
mod random_traces;
mod readiness_table;
mod reference_table;
mod reserve_table;
mod scene;
mod slow_model;
mod store;
mod traps;
mod waking;
mod world;
