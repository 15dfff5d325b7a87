fn main(){ let s:u64=std::env::args().nth(1).unwrap().parse().unwrap(); let mut o=std::io::stdout().lock(); let r=mandate_sim::nfd_l::run(s,&Default::default(),Some(&mut o)); eprintln!("{r:?}"); }
