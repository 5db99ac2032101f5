//! The compiled program: an ELF object whose references to maps are filled in before it is loaded.

use io::bpf::asm::Insn;
use object::read::elf::ElfFile64;
use object::{LittleEndian, Object, ObjectSection, ObjectSymbol, RelocationTarget};

/// Why an object file is no program.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// It is no ELF file as it should be.
    #[error("not an object file: {0}")]
    Elf(#[from] object::Error),
    /// It has no section of that name.
    #[error("no section `{0}`")]
    NoSection(&'static str),
    /// A reference that is not one to a map.
    #[error("a reference at byte {0} is not one to a map")]
    Reference(u64),
    /// It refers to a map that the loader does not have.
    #[error("there is no map `{0}`")]
    NoMap(String),
}

/// Reads the program in `section` and puts the descriptors of the maps into it.
///
/// # Errors
/// What is wrong with the object.
pub(crate) fn program(
    file: &[u8],
    section: &'static str,
    map_fd: impl Fn(&str) -> Option<i32>,
) -> Result<Vec<Insn>, ObjectError> {
    let elf = ElfFile64::<LittleEndian>::parse(file)?;
    let code = elf
        .section_by_name(section)
        .ok_or(ObjectError::NoSection(section))?;
    let mut insns: Vec<Insn> = code
        .data()?
        .as_chunks::<8>()
        .0
        .iter()
        .map(|bytes| Insn::from_bytes(*bytes))
        .collect();
    for (offset, relocation) in code.relocations() {
        let RelocationTarget::Symbol(index) = relocation.target() else {
            return Err(ObjectError::Reference(offset));
        };
        let name = elf.symbol_by_index(index)?.name()?;
        let fd = map_fd(name).ok_or_else(|| ObjectError::NoMap(name.to_owned()))?;
        let insn = insns
            .get_mut((offset / 8) as usize)
            .ok_or(ObjectError::Reference(offset))?;
        *insn = insn.with_map(fd).ok_or(ObjectError::Reference(offset))?;
    }
    Ok(insns)
}
