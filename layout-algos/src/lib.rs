//! Algorithms that order functions.
