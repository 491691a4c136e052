use membound::kernel::*; use membound::memory::*; use membound::plan::*; use membound::record::*; use membound::run::{*, native::Native}; use membound::units::*;
fn main(){
  let args:Vec<String>=std::env::args().collect();
  let sizes:Vec<Bytes>=args[1].split(',').map(|s|s.parse().unwrap()).collect();
  let kernels:Vec<&str>=args[2].split(',').collect();
  let widths:Vec<Width>=args[3].split(',').map(|s|s.parse().unwrap()).collect();
  let stores:Vec<StoreKind>=args[4].split(',').map(|s|s.parse().unwrap()).collect();
  let unrolls:Vec<u32>=args[5].split(',').map(|s|s.parse().unwrap()).collect();
  let cpus:Vec<u32>=args[6].split(',').map(|s|s.parse().unwrap()).collect();
  let n:usize=args[7].parse().unwrap();
  let mut cases=vec![];
  for &ws in &sizes {for k in &kernels {for &w in &widths {for &st in &stores {for &u in &unrolls {
    cases.push(Case{work:Work::Kernel(Variant{kernel:k.to_string(),width:w,store:st,load:LoadKind::Regular,unroll:u}),memory:MemorySpec{kind:MemoryKind::Thp,node:None},cpus:cpus.clone(),working_set:ws,protocol:Protocol::Steady});
  }}}}}
  let mut ex=Native::new(&cases,false).unwrap();
  println!("{:?}",ex.clock());
  let hz=ex.clock().hz.0;
  let mut best=vec![vec![];cases.len()];
  let mut info=vec![(0f64,0f64);cases.len()];
  for _ in 0..5 { for (i,c) in cases.iter().enumerate(){
    let q=Quota{least_samples:3,most_samples:n,time:std::time::Duration::from_secs(1),settled:&|_|false,interrupted:&||false};
    match ex.visit(c,&q){ Outcome::Measured(m)=>{
      let mut clk:Vec<u64>=m.samples.core_clock_ticks.clone(); clk.sort();
      let core=m.core_clock_links as f64/(clk[clk.len()/2] as f64)*hz;
      for t in &m.samples.ticks { best[i].push(m.volume.payload() as f64*m.repetitions as f64/(*t as f64/hz)); }
      info[i]=(core,m.repetitions as f64);
    }, o=>{println!("{c} {o:?}");} } } }
  for (i,c) in cases.iter().enumerate(){ let b=&mut best[i]; if b.is_empty(){continue;} b.sort_by(|a,b|a.total_cmp(b));
    println!("{:55} u{:2} med {:7.2} best {:7.2} GB/s  {:6.2} B/cyc (best {:6.2}) core {:.3} GHz reps {}", c.to_string(), c.variant().unroll, b[b.len()/2]/1e9,b[b.len()-1]/1e9, b[b.len()/2]/info[i].0/cpus.len() as f64, b[b.len()-1]/info[i].0/cpus.len() as f64, info[i].0/1e9, info[i].1);
  }
}
