// Stands in for the precompiled header of the same name in targets that do not depend on LibTorch.
