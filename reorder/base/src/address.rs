//! The address spaces, one type each, so that mixing them is a compile error.
//!
//! ```text
//! file offset ── segments ──> Address (stated in the input image)
//!                                │  AddressMap
//!                                v
//!                             NewAddress (stated in the output image)
//!
//! RuntimeAddress = Address + load bias of one process
//! ```

use std::fmt;

macro_rules! address_space {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub u64);

        impl $name {
            /// The location `distance` bytes further on; wraps, as the processor's own arithmetic does.
            #[must_use]
            pub fn plus(self, distance: u64) -> Self {
                Self(self.0.wrapping_add(distance))
            }

            /// Bytes from `earlier` to `self`; wraps when `earlier` is the greater one.
            #[must_use]
            pub fn distance_from(self, earlier: Self) -> u64 {
                self.0.wrapping_sub(earlier.0)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "{:#x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "{:#x}", self.0)
            }
        }
    };
}

address_space! {
    /// A virtual address as stated in the input image, before the loader adds its bias.
    Address
}
address_space! {
    /// A virtual address as stated in the output image.
    NewAddress
}
address_space! {
    /// A position in the file. Relocating in place keeps file offsets, so one type serves both images.
    FileOffset
}
address_space! {
    /// A virtual address in a running process.
    RuntimeAddress
}
