"""The parts of jitload: from sources to a build in the cache, and from there to functions.

Layers, each of which uses only those below it:

    handle      Kernel, which follows the files; functions, what its names stand for now;
                formulas, its gradients and fake implementations
    opening     a build's library, and the functions in it; runtime, the simulator under them
    lazy_...    launchers and kernels that are compiled when they are called; background, the rest
    kept_...    objects of sources that an edit did not change
    building    the build of the files as they are now: from the cache, or compiled by the toolchain
    remembered  which build the files had when they were last read
    inputs      what decides a build, and its digest
    builds      the builds in the cache; cache, the folders that hold them

`jitload` is the public module of this package: other packages import from there.
"""

from playground_folder import place

place.require("simulator", "toolchain")
