// The device on which a rank computes.
#pragma once

#include <c10/core/Device.h>

#include <string>

namespace strata {

/// Makes a device the calling thread's own: the CPU, or of the accelerators called `name` ("cuda")
/// the one whose turn it is, since the ranks of a machine take them in turn. A rank that sees one
/// only takes that. Loads the CUDA library for "cuda". Throws WorldError when there is none.
c10::Device TakeDevice(const std::string& name, int local_rank);
/// The same of a type that is registered already.
c10::Device TakeDevice(c10::DeviceType type, int local_rank);

/// How many of the accelerators called `name` this process can use. Loads the CUDA library for
/// "cuda"; throws WorldError when that cannot be loaded.
int DeviceCount(const std::string& name);

}  // namespace strata
