//! `LC_UUID` of the output: debuggers find debug information by it, and the old information has the old addresses.
//!
//! The new one depends on the old one and on the layout alone, and equals the old one if no function moves.
//! Source of the form: RFC 9562, sections 4 and 5.5.

use sha2::{Digest, Sha256};

use crate::address_map::AddressMap;
use reorder_base::error::{Error, Result};
use reorder_image::macho::file::MachOFile;

/// Writes the new identity; images without one stay so.
///
/// # Errors
/// A command that lies outside of `output`.
pub(super) fn change_identity(file: &MachOFile<'_>, map: &AddressMap, output: &mut [u8]) -> Result<()> {
    let Some((old, command)) = file.uuid.zip(file.command(object::macho::LC_UUID.0)) else { return Ok(()) };
    if map.is_identity() {
        return Ok(());
    }
    let at = command.offset + 8;
    let field = output.get_mut(at..at + 16);
    let field = field.ok_or_else(|| Error::malformed(at as u64, "LC_UUID lies outside of the image"))?;
    field.copy_from_slice(&new_identity(old, map));
    Ok(())
}

fn new_identity(old: [u8; 16], map: &AddressMap) -> [u8; 16] {
    let mut digest = Sha256::new();
    digest.update(old);
    let mut moves = map.moves().iter().copied().peekable();
    while let Some(mut moved) = moves.next() {
        // Pieces that move together are one range, however they were cut.
        while let Some(next) =
            moves.next_if(|next| next.old == moved.old.plus(moved.size) && next.delta() == moved.delta())
        {
            moved.size += next.size;
        }
        for number in [moved.old.0, moved.new.0, moved.size] {
            digest.update(number.to_le_bytes());
        }
    }
    let digest = digest.finalize();
    let mut identity = [0; 16];
    identity.copy_from_slice(&digest[..16]);
    identity[6] = identity[6] & 0x0f | 0x50;
    identity[8] = identity[8] & 0x3f | 0x80;
    identity
}

#[cfg(test)]
mod tests {
    use super::new_identity;
    use crate::address_map::{AddressMap, Move};
    use reorder_base::address::{Address, NewAddress};

    fn map(moves: &[(u64, u64, u64)]) -> AddressMap {
        let moves =
            moves.iter().map(|&(old, new, size)| Move { old: Address(old), new: NewAddress(new), size });
        AddressMap::new(moves).expect("ranges do not overlap")
    }

    #[test]
    fn the_layout_decides_and_not_how_it_is_written() {
        let whole = new_identity([7; 16], &map(&[(0, 100, 20), (100, 0, 20)]));
        assert_eq!(whole, new_identity([7; 16], &map(&[(0, 100, 8), (8, 108, 12), (100, 0, 20)])));
        assert_ne!(whole, new_identity([8; 16], &map(&[(0, 100, 20), (100, 0, 20)])));
        assert_ne!(whole, new_identity([7; 16], &map(&[(0, 104, 20), (104, 0, 20)])));
        assert_eq!((whole[6] >> 4, whole[8] >> 6), (5, 2));
    }
}
