//! The whole system in virtual time.

mod planted;
mod seeds;
