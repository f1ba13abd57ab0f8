// The online loop of EpisodicActorCritic on SecretInformant as one persistent kernel: environment, read, act, learn,
// write. A group of G lanes lives one run; lane l holds row l of every weight matrix and of its traces in registers
// for the whole launch, and the lanes of a group exchange activations through shared memory.
//
// The definition is recollect.agents.episodic; symbols and order follow it, and tests/engines holds the two equal.
// Sizes come as macros: S observation, H hidden, A actions, N memory, L chain, D decisions, G lanes a run, WARPS a
// block, TRACES (0: λ = 0 for all), EVERY (the estimator), MEMORY (0 reservoir, 1 uniform, 2 fifo, 3 none), ORACLE (a
// bit to write by, or -1), RECORD.

#define UP4(x) (((x) + 3) / 4 * 4)
#define SP UP4(S)
#define HP UP4(G)
#define ROWS (1 + 2 * D * A + 2 * D)
#define GROUPS (32 / G)  // runs a warp; the lanes left over are sent home
#define FULL (GROUPS * G < 32 ? (1u << (GROUPS * G % 32)) - 1u : 0xffffffffu)
#define DRAWS (2 * D + L)
#define WRITE_BLOCKS ((N + 3 + 3) / 4)
#define TALL (H > S ? H : S)

#define P_VALUE 0
#define P_POLICY (P_VALUE + H * S + H + H + 1)
#define P_QUERY (P_POLICY + H * 2 * S + H + H * H + H + A * H + A)
#define P_WRITE (P_QUERY + H * S + H + S * H + S)
#define P_THETA (P_WRITE + H * S + H + H + 1)
#define PARAMS (P_THETA + 1)

#define F_TRACES PARAMS
#define F_LOGW (2 * PARAMS)
#define F_HIGH (F_LOGW + N)
#define F_LOW (F_HIGH + N + 1)
#define F_DROP (F_LOW + N + 1)
#define F_SCORE (MEMORY == 0 ? F_DROP + N * N : F_HIGH)

#define I_ITEMS 0
#define I_RANKS (I_ITEMS + N)
#define I_SEEN (I_RANKS + N)
#define I_OBS (I_SEEN + 1)
#define I_RECALLED (I_OBS + 1)
#define I_SLOT (I_RECALLED + 1)
#define I_ACTION (I_SLOT + 1)
#define I_RIGHT (I_ACTION + 1)
#define I_CHAIN (I_RIGHT + D)
#define I_POSITION (I_CHAIN + L)
#define I_CORRECT (I_POSITION + 1)
#define I_KEY (I_CORRECT + 1)
#define I_STEPS (I_KEY + 4)
#define I_EPISODE (I_STEPS + 1)
#define I_LENGTH (I_EPISODE + 1)
#define I_FAULTS (I_LENGTH + 1)

#define LOG_INFINITY 1e36f
#define LOG_ZERO_WEIGHT (-2e36f)
#define INF __int_as_float(0x7f800000)

typedef unsigned int u32;

static __device__ __forceinline__ float exp_(float x) { return __expf(x); }
static __device__ __forceinline__ float tanh_(float x) { return 1.f - __fdividef(2.f, 1.f + __expf(2.f * x)); }
static __device__ __forceinline__ float sigmoid_(float x) { return __fdividef(1.f, 1.f + __expf(-x)); }
static __device__ __forceinline__ float log_sigmoid(float x) { return fminf(x, 0.f) - log1pf(expf(-fabsf(x))); }
static __device__ __forceinline__ float uniform_(u32 w) { return (float)(w >> 9) * 1.1920928955078125e-7f; }

static __device__ __forceinline__ uint4 philox(u32 k0, u32 k1, u32 a, u32 b, u32 c, u32 d) {
#pragma unroll
  for (int i = 0; i < 10; i++) {
    u32 la = a * 0xD2511F53u, ha = __umulhi(a, 0xD2511F53u), lc = c * 0xCD9E8D57u, hc = __umulhi(c, 0xCD9E8D57u);
    a = hc ^ b ^ k0; b = lc; c = ha ^ d ^ k1; d = la;
    k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
  }
  return make_uint4(a, b, c, d);
}

// An event whose chance may lie below the spacing of a uniform number: see recollect.reservoir.kernel._happens.
static __device__ __forceinline__ bool happens(float u, float u_low, float p) {
  float drawn = floorf(u * 8388608.f), leading = floorf(p * 8388608.f);
  return drawn < leading || (drawn == leading && u_low < p * 8388608.f - leading);
}

template <int M> static __device__ __forceinline__ void load(float (&x)[M], const float *from) {
#pragma unroll
  for (int j = 0; j < M / 4; j++) {
    float4 v = reinterpret_cast<const float4 *>(from)[j];
    x[4 * j] = v.x; x[4 * j + 1] = v.y; x[4 * j + 2] = v.z; x[4 * j + 3] = v.w;
  }
#pragma unroll
  for (int j = M / 4 * 4; j < M; j++) x[j] = from[j];
}
template <int M> static __device__ __forceinline__ float dot(const float (&w)[M], const float (&x)[M], float sum) {
  float even = sum, odd = 0.f;
#pragma unroll
  for (int j = 0; j + 1 < M; j += 2) { even = fmaf(w[j], x[j], even); odd = fmaf(w[j + 1], x[j + 1], odd); }
  if (M % 2) even = fmaf(w[M - 1], x[M - 1], even);
  return even + odd;
}
template <int M> static __device__ __forceinline__ float total(const float *from) {
  float x[M], even = 0.f, odd = 0.f;
  load<M>(x, from);
#pragma unroll
  for (int j = 0; j < M; j++) { if (j % 2) odd += x[j]; else even += x[j]; }
  return even + odd;
}
// column sums of rows that the lanes wrote: out[l] = sum_i rows[i][l]
template <int M> static __device__ __forceinline__ float column(const float *rows, int l) {
  float even = 0.f, odd = 0.f;
#pragma unroll
  for (int i = 0; i < M; i++) { if (i % 2) odd += rows[i * HP + l]; else even += rows[i * HP + l]; }
  return even + odd;
}
template <int M> static __device__ __forceinline__ void spread(float *row, const float (&w)[M], float d) {
#pragma unroll
  for (int j = 0; j < M; j++) row[j] = w[j] * d;
}

// One parameter's step along δ times its trace z, or its gradient g alone.
#if TRACES
#define LEARN(p, z, g) do { z = fmaf(decay, z, (g)); p = fmaf(step, z, p); } while (0)
#else
#define LEARN(p, z, g) p = fmaf(step, (g), p)
#endif

struct __align__(16) Group {  // shared memory of one run
  float hq[HP], q[HP], h1[HP], h2[HP], a[HP], b[HP], c[HP], d[HP], logits[HP];
  float rows_p[TALL * HP], rows_e[TALL * HP], rows_q[TALL * HP], rows_p2[TALL * HP], rows_e2[TALL * HP];
  u32 words[4 * (WRITE_BLOCKS + 1)];
  float drop[N * N];
  u32 bits[UP4(DRAWS)];
  int chain[L], right[D], items[N];
};

extern "C" __global__ void __launch_bounds__(32 * WARPS)
advance(float *F, int *I, const float *hyper, float *sums, float *snapshots, int *marks, const float *table_,
        int runs, int records, int episodes, int bin_size, int bins, int cap, int max_steps) {
  __shared__ __align__(16) float table[ROWS * SP];
  __shared__ __align__(16) Group groups[WARPS * GROUPS];
  for (int i = threadIdx.x; i < ROWS * SP; i += blockDim.x) table[i] = i % SP < S ? table_[i / SP * S + i % SP] : 0.f;
  __syncthreads();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, place = lane / G, l = lane % G, base = place * G;
  if (place >= GROUPS) return;
  const int own_run = (blockIdx.x * WARPS + warp) * GROUPS + place, run = min(own_run, runs - 1);
  const bool owner = own_run < runs;  // a group without a run follows along with the last one's and stores nothing
  Group &g = groups[warp * GROUPS + place];
  for (int i = l; i < (int)(sizeof(Group) / 4); i += G) reinterpret_cast<float *>(&g)[i] = 0.f;
  __syncwarp(FULL);
  const bool in_h = l < H, in_s = l < S, in_a = l < A, in_n = l < N;
#define FLOAT(k) F[(size_t)(k) * runs + run]
#define INT(k) I[(size_t)(k) * runs + run]
#define HYPER(k) hyper[(size_t)(k) * runs + run]

  // parameters and traces: lane l's rows
  float vW1[S], vb1, vW2, vb2, pW1[2 * S], pb1, pW2[H], pb2, pW3[H], pb3, qW1[S], qb1, qW2[H], qb2, wW1[S], wb1, wW2, wb2, theta;
  float zvW1[S], zvb1, zvW2, zvb2, zpW1[2 * S], zpb1, zpW2[H], zpb2, zpW3[H], zpb3, zqW1[S], zqb1, zqW2[H], zqb2, zwW1[S], zwb1, zwW2, zwb2, ztheta;
#define EACH(DO) \
  do { int at; \
    at = P_VALUE; DO##_ROW(vW1, zvW1, S, in_h, at + l * S); at += H * S; DO##_ONE(vb1, zvb1, in_h, at + l); at += H; \
    DO##_ONE(vW2, zvW2, in_h, at + l); at += H; DO##_ALL(vb2, zvb2, at); \
    at = P_POLICY; DO##_ROW(pW1, zpW1, 2 * S, in_h, at + l * 2 * S); at += H * 2 * S; DO##_ONE(pb1, zpb1, in_h, at + l); at += H; \
    DO##_ROW(pW2, zpW2, H, in_h, at + l * H); at += H * H; DO##_ONE(pb2, zpb2, in_h, at + l); at += H; \
    DO##_ROW(pW3, zpW3, H, in_a, at + l * H); at += A * H; DO##_ONE(pb3, zpb3, in_a, at + l); \
    at = P_QUERY; DO##_ROW(qW1, zqW1, S, in_h, at + l * S); at += H * S; DO##_ONE(qb1, zqb1, in_h, at + l); at += H; \
    DO##_ROW(qW2, zqW2, H, in_s, at + l * H); at += S * H; DO##_ONE(qb2, zqb2, in_s, at + l); \
    at = P_WRITE; DO##_ROW(wW1, zwW1, S, in_h, at + l * S); at += H * S; DO##_ONE(wb1, zwb1, in_h, at + l); at += H; \
    DO##_ONE(wW2, zwW2, in_h, at + l); at += H; DO##_ALL(wb2, zwb2, at); \
    DO##_ALL(theta, ztheta, P_THETA); } while (0)
#define GET_ROW(x, z, M, mine, k) _Pragma("unroll") for (int j = 0; j < M; j++) { x[j] = mine ? FLOAT((k) + j) : 0.f; z[j] = mine ? FLOAT(F_TRACES + (k) + j) : 0.f; }
#define GET_ONE(x, z, mine, k) do { x = mine ? FLOAT(k) : 0.f; z = mine ? FLOAT(F_TRACES + (k)) : 0.f; } while (0)
#define GET_ALL(x, z, k) do { x = FLOAT(k); z = FLOAT(F_TRACES + (k)); } while (0)
#define PUT_ROW(x, z, M, mine, k) if (mine) { _Pragma("unroll") for (int j = 0; j < M; j++) { FLOAT((k) + j) = x[j]; FLOAT(F_TRACES + (k) + j) = TRACES ? keep * z[j] : 0.f; } }
#define PUT_ONE(x, z, mine, k) if (mine) { FLOAT(k) = x; FLOAT(F_TRACES + (k)) = TRACES ? keep * z : 0.f; }
#define PUT_ALL(x, z, k) if (l == 0) { FLOAT(k) = x; FLOAT(F_TRACES + (k)) = TRACES ? keep * z : 0.f; }
#define SNAP_ROW(x, z, M, mine, k) if ((mine) && (k) >= P_QUERY) { _Pragma("unroll") for (int j = 0; j < M; j++) SNAP((k) + j) = x[j]; }
#define SNAP_ONE(x, z, mine, k) if ((mine) && (k) >= P_QUERY) SNAP(k) = x
#define SNAP_ALL(x, z, k) if (l == 0 && (k) >= P_QUERY) SNAP(k) = x
#define SNAP(k) snapshots[((size_t)record * (PARAMS - P_QUERY) + (k) - P_QUERY) * runs + run]
  EACH(GET);

  const float alpha = HYPER(0), gamma = HYPER(1), gamma_lambda = gamma * HYPER(2), entropy = HYPER(3);
  const float rate_v = HYPER(4), rate_p = HYPER(5), rate_q = HYPER(6), rate_w = HYPER(7), rate_b = HYPER(8);
  const float v_end = HYPER(9), floor_w = HYPER(10), surprise = HYPER(11), credit_cap = HYPER(12);
  const u32 k0 = (u32)INT(I_KEY), k1 = (u32)INT(I_KEY + 1);

  // memory: lane i < N holds slot i and the ratio g_{i+1}; g_0 is infinite
  float logw = in_n ? FLOAT(F_LOGW + l) : 0.f, high = 0.f, low = 0.f;
  if (MEMORY == 0 && in_n) { high = FLOAT(F_HIGH + l + 1); low = FLOAT(F_LOW + l + 1); }
  int rank = in_n ? INT(I_RANKS + l) : 0, seen = INT(I_SEEN);
  if (in_n) g.items[l] = INT(I_ITEMS + l);
  if (MEMORY == 0) for (int i = l; i < N * N; i += G) g.drop[i] = FLOAT(F_DROP + i);
  for (int i = l; i < L; i += G) g.chain[i] = INT(I_CHAIN + i);
  for (int i = l; i < D; i += G) g.right[i] = INT(I_RIGHT + i);
  int row = INT(I_OBS), row_m = INT(I_RECALLED), slot = INT(I_SLOT), action = INT(I_ACTION);
  int position = INT(I_POSITION), correct = INT(I_CORRECT);
  int steps = INT(I_STEPS), episode = INT(I_EPISODE), length = INT(I_LENGTH), faults = INT(I_FAULTS);
  float score = FLOAT(F_SCORE), keep = 1.f;
  bool live = owner && episode < episodes && steps < max_steps;
  if (owner && !live && l == 0)
    for (int record = 0; record < records; record++) { marks[(record * 2) * runs + run] = episode; marks[(record * 2 + 1) * runs + run] = steps; }
  if (owner && !live) for (int record = 0; record < records; record++) EACH(SNAP);
  __syncwarp(FULL);

  const int last = records * RECORD;
  int count = 0;
#pragma unroll 1
  for (int t = 0;; t++) {
    // -- begin: recall a state, choose an action
    float s[S], m[S], x[H];
    load<S>(s, table + row * SP);
    const float hq = tanh_(dot<S>(qW1, s, qb1));
    g.hq[l] = hq;
    __syncwarp(FULL);
    load<H>(x, g.hq);
    const float q = tanh_(dot<H>(qW2, x, qb2));
    g.q[l] = q;
    __syncwarp(FULL);
    const float inverse_tau = exp_(-theta);
    {
      float item[S], query[S];
      load<S>(item, table + (in_n ? g.items[l] : 0) * SP);
      load<S>(query, g.q);
      g.a[l] = in_n && rank > 0 ? dot<S>(item, query, 0.f) * inverse_tau : -INF;
    }
    __syncwarp(FULL);
    float logit[N], pq[N], top = -INF, sum = 0.f;
    load<N>(logit, g.a);
#pragma unroll
    for (int i = 0; i < N; i++) top = fmaxf(top, logit[i]);
    count = 0;
#pragma unroll
    for (int i = 0; i < N; i++) {
      const bool filled = logit[i] > -INF;
      count += filled;
      sum += pq[i] = filled ? exp_(logit[i] - top) : 0.f;
    }
    if (t > 0) {
      const float u = uniform_(g.words[4 * WRITE_BLOCKS]) * sum;
      float below = 0.f;
      slot = 0;
#pragma unroll
      for (int i = 0; i + 1 < N; i++) { below += pq[i]; slot += u >= below; }
      slot = count ? slot : 0;
      row_m = count ? g.items[slot] : 0;
    }
    const float inverse_sum = count ? __fdividef(1.f, sum) : 0.f;
    load<S>(m, table + row_m * SP);
    float h1;
    {
      float sm[2 * S];
#pragma unroll
      for (int j = 0; j < S; j++) { sm[j] = s[j]; sm[S + j] = m[j]; }
      h1 = tanh_(dot<2 * S>(pW1, sm, pb1));
    }
    g.h1[l] = h1;
    __syncwarp(FULL);
    load<H>(x, g.h1);
    const float h2 = tanh_(dot<H>(pW2, x, pb2));
    g.h2[l] = h2;
    __syncwarp(FULL);
    load<H>(x, g.h2);
    g.logits[l] = dot<H>(pW3, x, pb3);
    __syncwarp(FULL);
    float pa[A], top_a = -INF, sum_a = 0.f;
    load<A>(pa, g.logits);
#pragma unroll
    for (int i = 0; i < A; i++) top_a = fmaxf(top_a, pa[i]);
#pragma unroll
    for (int i = 0; i < A; i++) { pa[i] -= top_a; sum_a += exp_(pa[i]); }
    const float log_sum = __logf(sum_a);
    if (t > 0) {
      const float u = uniform_(g.words[4 * WRITE_BLOCKS + 1]) * sum_a;
      float below = 0.f;
      action = 0;
#pragma unroll
      for (int i = 0; i + 1 < A; i++) { below += exp_(pa[i]); action += u >= below; }
    }

    // -- where a record, the run or the launch ends
    if (t > 0 && t % RECORD == 0 && live) {
      const int record = t / RECORD - 1;
      EACH(SNAP);
      if (l == 0) { marks[(record * 2) * runs + run] = episode; marks[(record * 2 + 1) * runs + run] = steps; }
    }
    const bool active = episode < episodes && steps < max_steps && t < last;
    if (live && !active) {
      EACH(PUT);
      for (int record = t / RECORD; record < records; record++) {
        EACH(SNAP);
        if (l == 0) { marks[(record * 2) * runs + run] = episode; marks[(record * 2 + 1) * runs + run] = steps; }
      }
      if (in_n) { FLOAT(F_LOGW + l) = logw; INT(I_RANKS + l) = rank; INT(I_ITEMS + l) = g.items[l]; }
      if (MEMORY == 0) {
        if (in_n) { FLOAT(F_HIGH + l + 1) = high; FLOAT(F_LOW + l + 1) = low; }
        for (int i = l; i < N * N; i += G) FLOAT(F_DROP + i) = g.drop[i];
      }
      for (int i = l; i < L; i += G) INT(I_CHAIN + i) = g.chain[i];
      for (int i = l; i < D; i += G) INT(I_RIGHT + i) = g.right[i];
      if (l == 0) {
        INT(I_SEEN) = seen; INT(I_OBS) = row; INT(I_RECALLED) = row_m; INT(I_SLOT) = slot; INT(I_ACTION) = action;
        INT(I_POSITION) = position; INT(I_CORRECT) = correct; INT(I_STEPS) = steps; INT(I_EPISODE) = episode;
        INT(I_LENGTH) = length; INT(I_FAULTS) = faults; FLOAT(F_SCORE) = score;
      }
      live = false;
    }
    if (!__any_sync(FULL, live)) break;
    __syncwarp(FULL);

    // -- the environment
    const bool deciding = position > L && position <= L + D;
    const bool moves = deciding || (position <= L && action == 1);
    if (deciding) correct &= action == g.right[position - L - 1];
    position += moves;
    const bool terminated = position > L + D;
    const float reward = moves && terminated && correct ? 1.f : 0.f;
    const int row_next = position == 0 || terminated ? 0
        : position <= L ? g.chain[position - 1] : 1 + 2 * D * A + 2 * (position - L - 1) + correct;
    score += reward;
    length += 1;
    const bool done = terminated || length >= cap;

    // -- randomness of this step: blocks for the write, then one for the next read and action
    if (l <= WRITE_BLOCKS) {
      const uint4 w = philox(k0, k1, l < WRITE_BLOCKS ? l : 0, 2u, (u32)steps, l < WRITE_BLOCKS ? 2u : 3u);
      g.words[4 * l] = w.x; g.words[4 * l + 1] = w.y; g.words[4 * l + 2] = w.z; g.words[4 * l + 3] = w.w;
    }

    // -- values of both states, write weights of the new and the recalled one
    float s_next[S];
    load<S>(s_next, table + row_next * SP);
    const float hv = tanh_(dot<S>(vW1, s, vb1)), hv_next = tanh_(dot<S>(vW1, s_next, vb1));
    const float hw = tanh_(dot<S>(wW1, s, wb1));
    g.a[l] = vW2 * hv; g.b[l] = vW2 * hv_next; g.c[l] = wW2 * hw;
#if !EVERY
    const float hw_m = tanh_(dot<S>(wW1, m, wb1));
    g.d[l] = wW2 * hw_m;
#endif
    __syncwarp(FULL);
    const float v = tanh_(total<H>(g.a) + vb2);
    const float v_next = terminated ? v_end : tanh_(total<H>(g.b) + vb2);
    const float log_w = ORACLE < 0 ? fmaxf(log_sigmoid(total<H>(g.c) + wb2), floor_w)
        : s[ORACLE < 0 ? 0 : ORACLE] > 0.f ? 0.f : LOG_ZERO_WEIGHT;
    const float delta = reward + gamma * v_next - v;
    const int slot_lane = base + slot;
    const float logw_slot = __shfl_sync(FULL, logw, slot_lane);

    // -- gradients of the scores at each network's output
    float g_theta = 0.f, dq = 0.f;
    if (count) {
      float mean = 0.f, chosen = 0.f;
#pragma unroll
      for (int i = 0; i < N; i++) {
        const float p = pq[i] * inverse_sum;
        if (logit[i] > -INF) { mean = fmaf(p, logit[i], mean); dq = fmaf((i == slot) - p, table[g.items[i] * SP + min(l, S - 1)], dq); }
        chosen = i == slot ? logit[i] : chosen;
      }
      g_theta = mean - chosen;
      dq *= inverse_tau * (1.f - q * q);
    }
    dq = in_s ? dq : 0.f;
    float mean_log = 0.f;
#pragma unroll
    for (int i = 0; i < A; i++) mean_log += exp_(pa[i] - log_sum) * (pa[i] - log_sum);
    float own = 0.f;  // log π(l)
#pragma unroll
    for (int i = 0; i < A; i++) own = i == l ? pa[i] - log_sum : own;
    const float p_own = in_a ? exp_(own) : 0.f;
    float d3 = in_a ? (l == action) - p_own : 0.f, e3 = in_a ? -p_own * (own - mean_log) : 0.f;
#if EVERY
    float gwW1[S] = {}, gwb1 = 0.f, gwW2 = 0.f, gwb2 = 0.f, worst = 0.f;
    for (int i = 0; i < N; i++) {
      float item[S];
      load<S>(item, table + g.items[i] * SP);
      const float h = tanh_(dot<S>(wW1, item, wb1));
      g.d[l] = wW2 * h;
      __syncwarp(FULL);
      const float out = total<H>(g.d) + wb2;
      __syncwarp(FULL);
      const float given = __shfl_sync(FULL, logw, base + i);
      const float d = ORACLE < 0 && logit[i] > -INF ? fminf(expf(log_sigmoid(out) - given), credit_cap) * sigmoid_(-out) : 0.f;
      const float dh = d * wW2 * (1.f - h * h);
      worst = fmaxf(worst, d);
      gwb2 += d; gwW2 = fmaf(d, h, gwW2); gwb1 += dh;
#pragma unroll
      for (int j = 0; j < S; j++) gwW1[j] = fmaf(dh, item[j], gwW1[j]);
    }
#else
    const float out = total<H>(g.d) + wb2;
    const float gw = ORACLE < 0 && count ? fminf(expf(log_sigmoid(out) - logw_slot), credit_cap) * sigmoid_(-out) : 0.f;
    const float worst = gw;
#endif
    // An update that is not finite is not made: everything else is bounded by products of these.
    const bool sound = fabsf(delta) < 1e30f && worst < 1e30f && fabsf(g_theta) < 1e30f;
    const float pull = sound ? alpha * delta : 0.f, even = sound ? alpha * rate_p * (entropy + surprise * fabsf(delta)) : 0.f;
    [[maybe_unused]] const float decay = sound ? gamma_lambda * keep : keep;
    if (!sound) { g_theta = dq = d3 = e3 = 0.f; faults = faults ? faults : -(steps + 1); }

    // -- back through the networks; products are laid out by row in shared memory and summed by column
#if !TRACES
    d3 = fmaf(pull * rate_p, d3, even * e3);
#endif
    if (in_a) spread<H>(g.rows_p + l * HP, pW3, d3);
    if (in_a && TRACES) spread<H>(g.rows_e + l * HP, pW3, e3);
    if (in_s) spread<H>(g.rows_q + l * HP, qW2, dq);
    __syncwarp(FULL);
    const float d2 = in_h ? column<A>(g.rows_p, l) * (1.f - h2 * h2) : 0.f;
    const float e2 = in_h && TRACES ? column<A>(g.rows_e, l) * (1.f - h2 * h2) : 0.f;
    const float dhq = in_h ? column<S>(g.rows_q, l) * (1.f - hq * hq) : 0.f;
    if (in_h) spread<H>(g.rows_p2 + l * HP, pW2, d2);
    if (in_h && TRACES) spread<H>(g.rows_e2 + l * HP, pW2, e2);
    __syncwarp(FULL);
    const float d1 = in_h ? column<H>(g.rows_p2, l) * (1.f - h1 * h1) : 0.f;
    const float e1 = in_h && TRACES ? column<H>(g.rows_e2, l) * (1.f - h1 * h1) : 0.f;
    // The policy's entropy pulls at once, not through the traces.
#if TRACES
#define LEARN_P(p, z, d, e, y, f) do { z = fmaf(decay, z, (d) * (y)); p = fmaf(step, z, fmaf(even * f, (e) * (y), p)); } while (0)
#else
#define LEARN_P(p, z, d, e, y, f) p = fmaf((d) * f, (y), p)
#endif
    {
      float step = TRACES ? pull * rate_p : 1.f;
      load<H>(x, g.h2);
#pragma unroll
      for (int j = 0; j < H; j++) LEARN_P(pW3[j], zpW3[j], d3, e3, x[j], 1.f);
      load<H>(x, g.h1);
#pragma unroll
      for (int j = 0; j < H; j++) LEARN_P(pW2[j], zpW2[j], d2, e2, x[j], 1.f);
#pragma unroll
      for (int j = 0; j < S; j++) { LEARN_P(pW1[j], zpW1[j], d1, e1, s[j], 1.f); LEARN_P(pW1[S + j], zpW1[S + j], d1, e1, m[j], 1.f); }
      step *= TRACES ? rate_b : 1.f;
      LEARN_P(pb3, zpb3, d3, e3, 1.f, rate_b); LEARN_P(pb2, zpb2, d2, e2, 1.f, rate_b); LEARN_P(pb1, zpb1, d1, e1, 1.f, rate_b);
    }
    {
      float step = pull * rate_q;
      load<H>(x, g.hq);
      LEARN(theta, ztheta, g_theta);
#pragma unroll
      for (int j = 0; j < H; j++) LEARN(qW2[j], zqW2[j], dq * x[j]);
#pragma unroll
      for (int j = 0; j < S; j++) LEARN(qW1[j], zqW1[j], dhq * s[j]);
      step *= rate_b;
      LEARN(qb2, zqb2, dq); LEARN(qb1, zqb1, dhq);
    }
    {
      float step = pull * rate_v;
      const float dv = sound ? 1.f - v * v : 0.f, dh = dv * vW2 * (1.f - hv * hv);
      LEARN(vW2, zvW2, dv * hv);
#pragma unroll
      for (int j = 0; j < S; j++) LEARN(vW1[j], zvW1[j], dh * s[j]);
      step *= rate_b;
      LEARN(vb2, zvb2, dv);
      LEARN(vb1, zvb1, dh);
    }
    {
      float step = pull * rate_w;
#if EVERY
      LEARN(wW2, zwW2, sound ? gwW2 : 0.f);
#pragma unroll
      for (int j = 0; j < S; j++) LEARN(wW1[j], zwW1[j], sound ? gwW1[j] : 0.f);
      step *= rate_b;
      LEARN(wb2, zwb2, sound ? gwb2 : 0.f);
      LEARN(wb1, zwb1, sound ? gwb1 : 0.f);
#else
      const float dw = sound ? gw : 0.f, dh = dw * wW2 * (1.f - hw_m * hw_m);
      LEARN(wW2, zwW2, dw * hw_m);
#pragma unroll
      for (int j = 0; j < S; j++) LEARN(wW1[j], zwW1[j], dh * m[j]);
      step *= rate_b;
      LEARN(wb2, zwb2, dw);
      LEARN(wb1, zwb1, dh);
#endif
    }
    keep = done ? 0.f : 1.f;

    // -- show S_t to the memory
    const float margin = (log_w - high) - low;
    float accept = MEMORY == 0 ? sigmoid_(margin) : MEMORY == 1 ? fminf(1.f, (float)N / (float)(seen + 1)) : MEMORY == 2 ? 1.f : 0.f;
    const bool counted = log_w != LOG_ZERO_WEIGHT && MEMORY != 3;
    if (MEMORY != 0 && !counted) accept = 0.f;
    if (MEMORY == 0) accept = __shfl_sync(FULL, accept, base + N - 1);
    const bool full = count == N;
    const bool accepted = happens(uniform_(g.words[0]), uniform_(g.words[1]), accept);
    int at = accepted ? count : N;
    if (__any_sync(FULL, accepted && full)) {
      if (in_n) {
        const float drop = MEMORY == 0 ? g.drop[l * N + max(rank - 1, 0)] : MEMORY == 1 ? __fdividef(1.f, (float)max(rank, 1)) : (float)(rank == 1);
        g.a[l] = happens(uniform_(g.words[2 + l]), uniform_(g.words[N + 2]), drop) ? (float)rank : 0.f;
      }
      __syncwarp(FULL);
      float best = -1.f, hit[N];
      int which = 0;
      load<N>(hit, g.a);
#pragma unroll
      for (int i = 0; i < N; i++) { which = hit[i] > best ? i : which; best = fmaxf(best, hit[i]); }
      if (accepted && full) at = which;
      __syncwarp(FULL);
    }
    const int rank_dropped = __shfl_sync(FULL, rank, base + min(at, N - 1));
    const int dropped = accepted && full ? rank_dropped : N;
    rank -= in_n && rank > dropped;
    if (l == at && in_n) { rank = min(count + 1, N); logw = log_w; g.items[l] = row; }
    seen += counted && seen < 0x7fffffff;
    if (MEMORY == 0) {
      const float excess = log1pf(expf(-fabsf(margin)));
      const int before = l > 0 ? lane - 1 : lane;
      float high_b = __shfl_sync(FULL, high, before), low_b = __shfl_sync(FULL, low, before);
      float margin_b = __shfl_sync(FULL, margin, before), excess_b = __shfl_sync(FULL, excess, before);
      if (l == 0) { high_b = LOG_INFINITY; low_b = 0.f; margin_b = log_w - LOG_INFINITY; excess_b = 0.f; }
      if (in_n) {
        if (at < N) {
          const float gap = (high_b - high) + (low_b - low);
          g.drop[at * N + l] = -expm1f(-fmaxf(gap, 0.f)) * sigmoid_(-margin_b);
        }
        const float up = margin_b > 0.f ? high_b : margin > 0.f ? log_w : high;
        const float lo = (margin_b > 0.f ? low_b : margin > 0.f ? 0.f : low) + (excess - excess_b);
        const float total_ = __fadd_rn(up, lo), part = __fsub_rn(total_, up);
        low = __fadd_rn(__fsub_rn(up, __fsub_rn(total_, part)), __fsub_rn(lo, part));
        high = total_;
      }
    }

    // -- the end of an episode: count it, empty the memory, draw the next
    if (__any_sync(FULL, done)) {
      if (done) {
        if (live && l == 0) {
          float *entry = sums + ((size_t)run * bins + min(episode / bin_size, bins - 1)) * 3;
          atomicAdd(entry, score); atomicAdd(entry + 1, (float)length); atomicAdd(entry + 2, 1.f);
        }
        logw = -INF; rank = 0; seen = 0;
        high = -LOG_INFINITY; low = 0.f;
        score = 0.f; length = 0; episode += 1; position = 0; correct = 1;
        for (int i = l; i < (DRAWS + 3) / 4; i += G) {
          const uint4 w = philox(k0, k1, i, 2u, (u32)steps, 1u);
          g.bits[4 * i] = w.x; g.bits[4 * i + 1] = w.y; g.bits[4 * i + 2] = w.z; g.bits[4 * i + 3] = w.w;
        }
      }
      __syncwarp(FULL);
      if (done) {
        int places[D], right[D];
#pragma unroll
        for (int d = 0; d < D; d++) { right[d] = __umulhi(g.bits[d], A); places[d] = __umulhi(g.bits[D + d], L - d); }
#pragma unroll
        for (int d = D - 2; d >= 0; d--)
#pragma unroll
          for (int e = d + 1; e < D; e++) places[e] += places[e] >= places[d];
        for (int i = l; i < L; i += G) {
          int told = 1 + D * A + (int)__umulhi(g.bits[2 * D + i], D * A);
#pragma unroll
          for (int d = 0; d < D; d++) told = places[d] == i ? 1 + d * A + right[d] : told;
          g.chain[i] = told;
        }
        if (l == 0) {
#pragma unroll
          for (int d = 0; d < D; d++) g.right[d] = right[d];
        }
      }
      __syncwarp(FULL);
    }
    row = done ? 0 : row_next;
    steps += 1;
    __syncwarp(FULL);
  }
}
