-- Lmod: put the program in PREFIX/membound/0.1.0/bin, and this file in a folder `membound` of MODULEPATH.
local name, version = "membound", "0.1.0"
local prefix = pathJoin(os.getenv("MEMBOUND_PREFIX") or "/opt", name, version)

help([[membound measures what bounds memory-bound code. Start with: membound --quick]])
whatis("Name: " .. name)
whatis("Version: " .. version)
whatis("Description: bandwidth, latency and limits of each level of the memory system")

conflict(name)
prepend_path("PATH", pathJoin(prefix, "bin"))
prepend_path("MANPATH", pathJoin(prefix, "share", "man"))
