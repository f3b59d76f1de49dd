//! The controllers on the embedded API.

mod pods;
mod workloads;
