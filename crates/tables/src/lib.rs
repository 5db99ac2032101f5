//! Lock-free shared tables, rings, timing wheel and memory segments of the Tidegate data plane.
