// The shadow devices as devices of LibTorch: "shadow:0" to "shadow:11" (machine.h says what they
// are). Linking this library registers them.
//
// Kernels are the CPU's, on tensors that share the memory, so numbers have the CPU's bits. A tensor
// of another device in a kernel's arguments is an error, as on CUDA, but for a CPU tensor without
// dims. What on CUDA makes the host wait is counted as a synchronisation: reading a number, a copy
// that blocks or whose memory on the host is not pinned, a kernel whose output's size depends on
// its input. An asynchronous copy to the host arrives when the host has waited for it and not
// before.
#pragma once

#include <c10/core/Device.h>

namespace strata::shadow {

/// Makes the devices known, at the first call. Returns shadow:`index`.
c10::Device Device(int index);

/// How many of the devices there seem to be, from now on.
void ShowDevices(int count);

/// The number in the machine of the calling thread's current stream on a device.
int CurrentStream(int device);

}  // namespace strata::shadow
