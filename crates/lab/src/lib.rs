//! Network-namespace topologies, traffic generator and RFC 2544 tester of Tidegate.
