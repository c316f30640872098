#include "tessera/mesh/device_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"

namespace tessera::mesh {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

const Mesh& grid() {
  static const Mesh mesh({{"a", 2}, {"b", 2}, {"c", 2}});
  return mesh;
}

TEST(DeviceLayout, TextParsesBack) {
  const DeviceLayout layout{{2, 2, 4}, {{2, 1}, {}, {0}}};
  EXPECT_EQ(to_string(layout), "([2,2,4],[(2,1),-1,0])");
  EXPECT_EQ(parse_device_layout(to_string(layout)), layout);
  EXPECT_EQ(parse_device_layout("([4, 2], [-1, 0])"), (DeviceLayout{{4, 2}, {{}, {0}}}));
  EXPECT_EQ(parse_device_layout("([],[])"), DeviceLayout{});
  EXPECT_THROW(parse_device_layout("([4,2],[-1,2])"), InvalidArgument);
  EXPECT_THROW(parse_device_layout("([4,2],[0,0])"), InvalidArgument);
  EXPECT_THROW(parse_device_layout("([4,0],[1,-1])"), InvalidArgument);
  EXPECT_THROW(parse_device_layout("([4,2])"), InvalidArgument);
}

TEST(DeviceLayout, RefusesMoreRanksThanThereMayBe) {
  // The first product wraps round to 0.
  for (const char* text : {"([4294967296,4294967296],[-1,0])", "([65536,2],[-1,0])"}) {
    EXPECT_THAT([&] { parse_device_layout(text); },
                ThrowsMessage<InvalidArgument>(HasSubstr("has more than 65536 ranks")));
  }
  EXPECT_EQ(parse_device_layout("([65536],[0])").num_ranks(), 65536);
}

TEST(DeviceLayout, StandardFormHasNoAxesOfSizeOne) {
  EXPECT_EQ(standard_form({{16, 1, 1}, {{2}, {0}}}), (DeviceLayout{{16}, {{0}, {}}}));
  EXPECT_EQ(standard_form({{1, 1, 1}, {{2}, {1}}}), (DeviceLayout{{}, {{}, {}}}));
  EXPECT_EQ(standard_form({{2, 1, 4}, {{2}, {0}}}), (DeviceLayout{{2, 4}, {{1}, {0}}}));
}

TEST(DeviceLayout, RepeatedComputationIsTheLastAxis) {
  EXPECT_EQ(repeated({{8, 1}, {{1}, {}}}, 16), (DeviceLayout{{8, 1, 2}, {{2}, {}}}));
  EXPECT_EQ(repeated({{4, 2}, {{1}, {0}}}, 8), (DeviceLayout{{4, 2}, {{1}, {0}}}));
  EXPECT_THROW(repeated({{4, 2}, {{1}, {0}}}, 12), InvalidArgument);
}

TEST(DeviceLayout, ShardingsTakeTheSmallestMatrix) {
  const auto text = [](const Sharding& sharding) { return to_string(device_layout(sharding, grid())); };
  EXPECT_EQ(text({{{0, 1}, {2}}, {}}), "([4,2],[1,0])");
  EXPECT_EQ(text({{{0}, {1}}, {}}), "([2,2,2],[2,1])");
  EXPECT_EQ(text({{{0}, {}}, {}}), "([2,4],[1,-1])");
  EXPECT_EQ(text({{{1}, {}}, {}}), "([2,2,2],[1,-1])");
  EXPECT_EQ(text({{{1, 0}, {}}, {}}), "([2,2,2],[(1,2),-1])");  // in no order that one axis could stand for
  EXPECT_EQ(text({{{0, 2}, {1}}, {}}), "([2,2,2],[(2,0),1])");
  EXPECT_EQ(text({{{0, 1, 2}}, {}}), "([8],[0])");
  EXPECT_EQ(text({{{}, {}}, {}}), "([8],[-1,-1])");
  EXPECT_EQ(text({{}, {}}), "([8],[])");
  const Mesh with_ones({{"x", 1}, {"a", 4}, {"y", 1}, {"b", 2}});
  EXPECT_EQ(to_string(device_layout({{{0, 1, 2, 3}, {}}, {}}, with_ones)), "([8],[0,-1])");
  EXPECT_THAT([&] { text({{{0}}, {{1, Reduction::kSum}}}); }, ThrowsMessage<InvalidArgument>(HasSubstr("is partial")));
}

TEST(DeviceLayout, AxesMergeOnlyWhereTheSlicesStay) {
  const Sharding split{{{0, 1, 2}}, {}};
  EXPECT_EQ(to_string(device_layout(split, grid(), {16})), "([8],[0])");
  EXPECT_EQ(to_string(device_layout(split, grid(), {7})), "([8],[0])");        // 1,1,1,1,1,1,1,0 either way
  EXPECT_EQ(to_string(device_layout(split, grid(), {6})), "([2,4],[(1,0)])");  // 1,1,1,0 twice
  EXPECT_EQ(to_string(device_layout(split, grid(), {20})), "([4,2],[(1,0)])");
}

TEST(DeviceLayout, MeshAxesRefineDeviceAxes) {
  EXPECT_EQ(sharding_of({{4, 2}, {{1}, {0}}}, grid()), (Sharding{{{0, 1}, {2}}, {}}));
  EXPECT_EQ(sharding_of({{2, 4}, {{0}, {1}}}, grid()), (Sharding{{{1, 2}, {0}}, {}}));
  EXPECT_EQ(sharding_of({{4}, {{0}, {}}}, grid()), (Sharding{{{0, 1}, {}}, {}}));  // repeated on c
  EXPECT_EQ(sharding_of({{4, 1, 2}, {{2}, {1, 0}}}, grid()), (Sharding{{{0, 1}, {2}}, {}}));
  EXPECT_THAT(
      [] {
        sharding_of({{2, 3}, {{1}}}, Mesh({{"a", 3}, {"b", 2}}));
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("does not refine")));
  for (const Sharding& sharding : {Sharding{{{2, 0}, {1}}, {}}, Sharding{{{}, {1, 2}}, {}}, Sharding{{{}, {}}, {}}}) {
    EXPECT_EQ(sharding_of(device_layout(sharding, grid()), grid()), sharding);
  }
}

TEST(DeviceLayout, SlicesOfADocumentedMatMul) {
  // ((2,1),(1,4)) on 8 devices: matrix [2,1,4]; slice 0 of the weight lives on devices 0 and 4.
  const DeviceLayout x{{2, 1, 4}, {{2}, {1}}};
  const DeviceLayout w{{2, 1, 4}, {{1}, {0}}};
  const DeviceLayout y{{2, 1, 4}, {{2}, {0}}};
  EXPECT_THAT(replica_groups(w),
              ElementsAre(ElementsAre(0, 4), ElementsAre(1, 5), ElementsAre(2, 6), ElementsAre(3, 7)));
  EXPECT_THAT(replicas(x, 6), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(y.slice_counts(), ElementsAre(2, 4));
  for (int64_t position = 0; position < 8; ++position) EXPECT_EQ(slice_index(y, position), position);
  EXPECT_EQ(slice_index({{2, 2, 2}, {{0, 2}, {1}}}, 5), 6);  // a=1, b=0, c=1: part 3 of dim 0, part 0 of dim 1
  EXPECT_THAT(axis_group(w, 2, 5), ElementsAre(1, 5));
  EXPECT_THAT(axis_group(w, 0, 5), ElementsAre(4, 5, 6, 7));
  EXPECT_THROW(axis_group(w, 3, 5), InvalidArgument);
  EXPECT_THROW(slice_index(w, 8), InvalidArgument);
}

}  // namespace
}  // namespace tessera::mesh
