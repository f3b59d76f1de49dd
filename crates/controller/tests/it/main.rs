//! The controllers on the embedded API.

mod connection;
mod pods;
mod workloads;
mod world;
