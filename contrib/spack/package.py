"""membound for Spack. Nothing is published yet, so the source is a checkout:

    spack repo create site && cp contrib/spack/package.py .../packages/membound/
    spack dev-build --source-path . membound@0.1.0
"""

from spack.package import *


class Membound(Package):
    """How fast is the memory of this machine, what bounds it, and what should I do about it?"""

    license("MIT OR Apache-2.0")

    version("0.1.0")

    variant("mpi", default=False, description="Bring an MPI along for ping-pongs and fleets; it is loaded at run time")

    depends_on("rust@1.89:", type="build")
    depends_on("mpi", type="run", when="+mpi")

    def install(self, spec, prefix):
        cargo = which("cargo", required=True)
        cargo("install", "--locked", "--root", prefix, "--path", "crates/membound")
        mkdirp(prefix.share.man.man1)
        program = Executable(join_path(prefix.bin, "membound"))
        with open(join_path(prefix.share.man.man1, "membound.1"), "w") as page:
            page.write(program("man", output=str))
