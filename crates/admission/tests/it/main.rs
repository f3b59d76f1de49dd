//! The engine from the outside: tables of its rules, and properties over random traces with faults.

mod build;
mod explaining;
mod flavor_table;
mod invariants;
mod lifecycle_table;
mod operations;
mod outcomes;
mod properties;
mod slow_model;
mod store;
mod waking;
mod world;
