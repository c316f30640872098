// What a step says where oneDNN gets no memory: it is told so here in place of the system.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "oneapi/dnnl/dnnl.h"
#include "tessera/base/error.h"
#include "tessera/ops/registry/op_def.h"
#include "tessera/session/session.h"

namespace tessera {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

// What has no memory.
bool creating = false;
bool executing = false;

}  // namespace
}  // namespace tessera

// By the linker's --wrap.
extern "C" {
dnnl_status_t __real_dnnl_primitive_create(dnnl_primitive_t*, const_dnnl_primitive_desc_t);             // NOLINT
dnnl_status_t __real_dnnl_primitive_execute(const_dnnl_primitive_t, dnnl_stream_t, int,                 // NOLINT
                                            const dnnl_exec_arg_t*);                                    // NOLINT
dnnl_status_t __wrap_dnnl_primitive_create(dnnl_primitive_t* made, const_dnnl_primitive_desc_t desc) {  // NOLINT
  return tessera::creating ? dnnl_out_of_memory : __real_dnnl_primitive_create(made, desc);
}
dnnl_status_t __wrap_dnnl_primitive_execute(const_dnnl_primitive_t primitive, dnnl_stream_t stream, int size,  // NOLINT
                                            const dnnl_exec_arg_t* arguments) {
  return tessera::executing ? dnnl_out_of_memory : __real_dnnl_primitive_execute(primitive, stream, size, arguments);
}
}

namespace tessera {
namespace {

struct Refusing {
  explicit Refusing(bool& what) : what(what) { what = true; }
  ~Refusing() { what = false; }
  bool& what;
};

ir::Graph product() {
  ir::Graph graph("g");
  const auto x = graph.add_input(ir::InputKind::kInput, "x", {DType::kF32, {32, 32}});
  const ir::SourceScope scope(graph, "fc");
  graph.add_output("y", ops::apply1("matmul", {x, x}));
  return graph;
}

TEST(NoMemory, OfAStepNamesItsOperatorAndWhatToDo) {
  const auto context = cluster::single_context(1);
  session::Session session(*context, {});
  const auto step = session.compile_local(product());
  copy_elements(Tensor::zeros({DType::kF32, {32, 32}}).view(), step->input("x"));
  {
    const Refusing refusing(executing);
    EXPECT_THAT([&] { step->run(); }, ThrowsMessage<InvalidArgument>(AllOf(
                                          StartsWith("matmul \"fc\": oneDNN has no memory to compute in, beside the "),
                                          HasSubstr(" of the step's that it was given; "), HasSubstr("threads run"),
                                          EndsWith("start fewer ranks on this host, or make the batch smaller"))));
  }
  step->run();  // once there is some
}

TEST(NoMemory, OfAStepThatIsMadeNamesItsOperatorAndTheLimit) {
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  const rlimit much{rlim_t{1} << 42, limit.rlim_max};
  setrlimit(RLIMIT_AS, &much);
  const auto context = cluster::single_context(1);
  session::Session session(*context, {});
  {
    const Refusing refusing(creating);
    EXPECT_THAT([&] { session.compile_local(product()); },
                ThrowsMessage<InvalidArgument>(
                    AllOf(StartsWith("matmul \"fc\": "), HasSubstr("oneDNN has no memory to make "),
                          HasSubstr("4.0 TiB of address space (ulimit -v), of which "),
                          EndsWith("raise that limit, start fewer ranks on this host, or make the batch smaller"))));
  }
  session.compile_local(product());
  setrlimit(RLIMIT_AS, &limit);
}

}  // namespace
}  // namespace tessera
