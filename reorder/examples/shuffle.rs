use reorder::image::{analysis::Analysis, elf::file::ElfFile, functions::{FunctionTable,FunctionIndex}};
use reorder::relocate::{plan::plan, relocate, RelocateOptions};
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let t=std::time::Instant::now();
    let bytes = std::fs::read(&a[1]).unwrap();
    let run = || -> reorder::error::Result<()> {
        let file = ElfFile::parse(&bytes)?;
        let functions = FunctionTable::collect(&file)?;
        eprintln!("{:?} functions {}", t.elapsed(), functions.len());
        let analysis = Analysis::new(&file, &functions)?;
        eprintln!("{:?} analysed", t.elapsed());
        let mut order: Vec<FunctionIndex> = functions.iter().map(|(i,_)| i).collect();
        layout_algos::random::Random::new(a[3].parse().unwrap(), &[]).shuffle(&mut order);
        let p = plan(&analysis, &functions, &order)?;
        eprintln!("{:?} planned", t.elapsed());
        let pinned: Vec<_> = analysis.units.iter().filter(|u| u.pin.is_some()).collect();
        let mut reasons = std::collections::BTreeMap::new();
        for u in &pinned { *reasons.entry(u.pin.unwrap().reason).or_insert(0) += u.blocks.len(); }
        let multi: usize = analysis.units.iter().filter(|u| u.blocks.len()>1).map(|u| u.blocks.len()).sum();
        eprintln!("{}: functions {} units {} pinned {} glued-blocks {} moved {} noroom {} tables {} pointers {} {:?}", a[1], functions.len(), analysis.units.len(), pinned.len(), multi, p.map.moves().len(), p.without_room.len(), analysis.tables.len(), analysis.pointers.len(), reasons);
        if a.len()>4 { for u in &pinned { eprintln!("  {} {:?}", u.start, u.pin); } }
        let out = relocate(&file, &functions, &analysis, &p.map, RelocateOptions::default())?;
        eprintln!("{:?} relocated", t.elapsed());
        std::fs::write(&a[2], out).unwrap();
        Ok(())
    };
    if let Err(e) = run() { eprintln!("{}: {e} hint {:?}", a[1], e.hint); std::process::exit(2) }
}
