// ncclGroupStart/End: works gathered per thread, given to the streams when the outermost group
// ends.
#pragma once

#include "collectives.hpp"

namespace transit::sim::nccl {

ncclResult_t group_start();
ncclResult_t group_end();
ncclResult_t group_drop();  // ends it without running anything
// Queues one work, at once or at the end of the open group.
ncclResult_t submit(ncclComm* comm, const Work& work, cudaStream_t stream);

}  // namespace transit::sim::nccl
