//! Indices as types, so that a port is never taken for a worker.

macro_rules! index {
    ($(#[$meta:meta])* $name:ident($repr:ty)) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $repr);

        impl $name {
            /// Returns the value as an array index.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

index! {
    /// A slot of a [`crate::Region`].
    FrameIdx(u32)
}
index! {
    /// A port of the node, in the order of the configuration.
    PortId(u16)
}
index! {
    /// A queue of a port.
    QueueId(u16)
}
index! {
    /// A worker: one thread, pinned to one core.
    WorkerId(u16)
}
