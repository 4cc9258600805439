// Launch geometry, which the host reads from the compiled module as `<kernel>_launch`.
#pragma once

enum class Schedule {
  tiles,       // a CTA for each tile of the extents, which are rounded up to 128 except for a product's output; some
               // CTAs are beyond the last row
  persistent,  // blocks_per_sm CTAs on each SM, but no more than there are tiles
  resident,    // a CTA for each tile, all at once, so that they may wait for each other
  patches,     // a CTA for each tile if that gives each SM blocks_per_sm of them, else for each 128x128
  by_flag,     // tiles or persistent, by the case's flag `schedule`
};

struct Launch {
  int tile_rows, tile_cols;  // elements a CTA takes, in all or (persistent) at a time
  int threads;
  int blocks_per_sm;  // CTAs that an SM holds at once, or (patches) gets at least; 0 if irrelevant, or (persistent,
                      // by_flag) if the __launch_bounds__ of each instantiation say it. With a cooperative launch the
                      // emulator counts by this; a GPU's driver is asked
  Schedule schedule;
};

// tile_cols of a CTA that takes whole rows, so that the grid has one column of CTAs
constexpr int kWholeRow = 0x7FFFFFFF;
// tile_rows of a CTA that takes whole columns
constexpr int kWholeColumn = 0x7FFFFFFF;

// A CTA for each Tile
template <typename Tile>
constexpr Launch kLaunchTiles = {Tile::kRows, Tile::kCols, Tile::kThreads, 0, Schedule::tiles};

// Top left element of this CTA's tile under Schedule::tiles: tile columns along x, tile rows along y and, as y ends at
// 65535, z.
struct TileOrigin {
  int row, col;
};

__device__ __forceinline__ TileOrigin tile_origin(int tile_rows, int tile_cols) {
  return {int(blockIdx.z * gridDim.y + blockIdx.y) * tile_rows, int(blockIdx.x) * tile_cols};
}

// tile_origin from the last row of tiles up, for an encode, because the L2 still holds what an amax ahead read last.
// CTAs beyond the last row come first. The product comes last, so that the compiler knows what divides a row.
__device__ __forceinline__ TileOrigin tile_origin_bottom_up(int tile_rows, int tile_cols) {
  return {int((gridDim.z - blockIdx.z) * gridDim.y - 1 - blockIdx.y) * tile_rows, int(blockIdx.x) * tile_cols};
}
