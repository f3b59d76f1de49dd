//! The whole system in virtual time.

mod seeds;
