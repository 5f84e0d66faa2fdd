//! Which code and data the code and data of an image refer to.
//!
//! Takes the image and its functions; gives [`References`]: a graph whose nodes are functions and data objects. It
//! tells an orderer what probably runs together, so it needs no proof: images that no analysis accepts for relocation
//! have a graph, and a reference that is not understood is left out.

mod bodies;
mod code;
mod fingerprints;
mod objects;
mod operand;
mod pointers;
mod regions;
mod relative_tables;
mod x86_64;

use layout_algos::problem::{NodeId, Reference, ReferenceGraph, ReferenceKind};
use layout_algos::problem::{Rows, TooManyItems};

use crate::elf::file::ElfFile;
use crate::functions::FunctionTable;
use code::{CodeReferences, Destination};
pub use fingerprints::{FingerprintOptions, Fingerprints};
pub use objects::DataObject;
use objects::DataObjects;
use pointers::Pointers;
use regions::{Region, Regions};
use relative_tables::table_targets;
use reorder_base::error::{Error, Result};

/// The reference graph of one image.
#[derive(Clone, Debug)]
pub struct References {
    /// Functions are numbered by their index, data objects follow. No node refers to itself, and to another only once: at
    /// the first position.
    pub graph: ReferenceGraph,
    /// The object of each node after the functions, by address.
    pub objects: Vec<DataObject>,
}

impl References {
    /// Extracts the graph of `file`, whose functions are `functions`.
    ///
    /// # Errors
    /// Malformed symbol tables; more functions and data objects, or more references, than 32-bit indices can tell apart.
    pub fn extract(file: &ElfFile<'_>, functions: &FunctionTable<'_>) -> Result<Self> {
        let regions = Regions::new(file);
        let pointers = Pointers::collect(file, functions, &regions);
        let code = CodeReferences::collect(functions, &regions, &pointers);
        let referred = code
            .data_addresses()
            .chain(pointers.iter().map(|pointer| pointer.target).filter(|target| regions.is_data(*target)))
            .collect();
        let objects = DataObjects::new(file, &regions, referred)?;
        let rows = build_rows(functions, &regions, &pointers, &code, &objects)?;
        let graph = ReferenceGraph::new(rows, functions.len()).ok_or_else(too_large)?;
        Ok(Self { graph, objects: objects.into_vec() })
    }
}

fn too_large() -> Error {
    Error::usage("the image has too many references to order its functions by them".to_string())
}

/// Rows without references to the source itself and without repetitions.
struct RowWriter {
    rows: Rows<Reference>,
    /// For each node, one more than the last source that referred to it.
    last_source: Vec<u32>,
}

impl RowWriter {
    fn push(&mut self, references: impl Iterator<Item = Reference>) -> Result<()> {
        let source = self.rows.len() as u32;
        let last_source = &mut self.last_source;
        let is_new = |reference: &Reference| {
            reference.target.0 != source
                && std::mem::replace(&mut last_source[reference.target.index()], source + 1) != source + 1
        };
        self.rows.push(references.filter(is_new)).map_err(|TooManyItems| too_large())
    }
}

fn build_rows(
    functions: &FunctionTable<'_>,
    regions: &Regions<'_>,
    pointers: &Pointers,
    code: &CodeReferences,
    objects: &DataObjects,
) -> Result<Rows<Reference>> {
    let nodes = functions.len() + objects.len();
    if u32::try_from(nodes).is_err() {
        return Err(too_large());
    }
    let node = |destination: Destination| match destination {
        Destination::Function(function) => Some(NodeId(function.0)),
        Destination::Data(address) => {
            objects.containing(address).map(|object| NodeId((functions.len() + object) as u32))
        }
    };
    let mut writer = RowWriter { rows: Rows::with_capacity(nodes, 0), last_source: vec![0; nodes] };
    code.for_each_function(|references| {
        writer.push(
            references
                .filter_map(|(destination, kind)| node(destination).map(|target| Reference { target, kind })),
        )
    })?;

    let destination = |pointer: pointers::Pointer| match regions.find(pointer.target)? {
        Region::Code => functions.containing(pointer.target).map(Destination::Function),
        Region::Data => Some(Destination::Data(pointer.target)),
        Region::Stubs | Region::Slots => None,
    };
    let mut remaining = pointers
        .iter()
        .filter_map(|pointer| Some((objects.containing(pointer.place)?, node(destination(pointer)?)?)))
        .peekable();
    for (index, object) in objects.iter().enumerate() {
        // Pointers and objects both ascend by address, so the pointers of an object are adjacent.
        let own = std::iter::from_fn(|| remaining.next_if(|(source, _)| *source == index));
        let in_table = table_targets(regions, functions, *object).map(|function| NodeId(function.0));
        let targets = own.map(|(_, target)| target).chain(in_table);
        writer.push(targets.map(|target| Reference { target, kind: ReferenceKind::Pointer }))?;
    }
    Ok(writer.rows)
}
