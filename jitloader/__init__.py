"""What jitload is made of: from sources to a build in the cache, and from there to functions.

One way down, each step knowing only those below it:

    handle      Kernel, which follows the files; functions, what its names stand for now;
                formulas, its gradients and fake implementations
    opening     a build's library, and the functions in it; runtime, the simulator under them
    lazy_...    launchers and kernels that are compiled when they are called; background, the whole
    kept_...    objects of sources that an edit left alone
    building    the build of what the files hold: from the cache, or compiled by the toolchain
    remembered  which build the files had when they were last read
    inputs      what decides a build, and the digest of it
    builds      the builds in the cache; cache, where they lie

`jitload` is the face of this room: whoever is not part of it imports from there.
"""

from playground_folder import place

place.require("simulator", "toolchain")
