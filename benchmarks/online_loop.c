// The yardstick of `recollect bench train`: the paper's agent on the secret informant, one run, one core, plain scalar C.
// What a core does when nothing but the arithmetic is left. Arguments: steps length decisions n hidden seed.
// Prints: steps seconds mean_return. Plain steps of .005 along δ times each score's gradient, γ = .99, no traces.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WIDE 512
#define SLOTS 1024
#define CHAIN 4096
#define RATE 0.005f

typedef struct {
  int in, out;
  float *w, *b;
} Layer;

static unsigned long long state;
static double uniform(void) {  // splitmix64
  unsigned long long z = (state += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}
static int below(int n) { return (int)(uniform() * n); }
static float normal(void) { return (float)(sqrt(-2 * log(1 - uniform())) * cos(6.283185307179586 * uniform())); }

static Layer layer(int out, int in, float gain) {
  Layer y = {in, out, malloc(sizeof(float) * (size_t)(in * out)), calloc((size_t)out, sizeof(float))};
  for (int k = 0; k < in * out; k++) y.w[k] = gain * normal() / sqrtf((float)in);
  return y;
}
static void apply(const Layer *y, const float *restrict x, float *restrict out) {
  for (int i = 0; i < y->out; i++) {
    float sum = y->b[i];
    for (int j = 0; j < y->in; j++) sum += y->w[i * y->in + j] * x[j];
    out[i] = sum;
  }
}
static void squash(float *x, int n) { for (int i = 0; i < n; i++) x[i] = tanhf(x[i]); }
// gradient at the inputs (through tanh, whose outputs x are), then one step of the layer; d is the gradient at its outputs
static void back(Layer *y, const float *restrict x, const float *restrict d, float *restrict d_in) {
  if (d_in) {
    for (int j = 0; j < y->in; j++) d_in[j] = 0;
    for (int i = 0; i < y->out; i++)
      for (int j = 0; j < y->in; j++) d_in[j] += y->w[i * y->in + j] * d[i];
    for (int j = 0; j < y->in; j++) d_in[j] *= 1 - x[j] * x[j];
  }
  for (int i = 0; i < y->out; i++) {
    const float step = RATE * d[i];
    y->b[i] += step;
    for (int j = 0; j < y->in; j++) y->w[i * y->in + j] += step * x[j];
  }
}
// turns logits into probabilities and draws one
static int draw(float *p, int n) {
  float top = p[0], sum = 0;
  for (int i = 1; i < n; i++) top = fmaxf(top, p[i]);
  for (int i = 0; i < n; i++) sum += p[i] = expf(p[i] - top);
  for (int i = 0; i < n; i++) p[i] /= sum;
  float u = (float)uniform();
  int k = 0;
  while (k < n - 1 && u >= p[k]) u -= p[k++];
  return k;
}

int main(int count, char **args) {
  if (count != 7) return 2;
  const long steps = atol(args[1]);
  const int L = atoi(args[2]), D = atoi(args[3]), n = atoi(args[4]), H = atoi(args[5]), A = 3, S = A + 2 + D + 2;
  if (L > CHAIN || n > SLOTS || H > WIDE || 2 * S > WIDE) return 2;
  state = strtoull(args[6], NULL, 10);
  Layer v1 = layer(H, S, 1), v2 = layer(1, H, 0), p1 = layer(H, 2 * S, 1), p2 = layer(H, H, 1), p3 = layer(A, H, 1);
  Layer q1 = layer(H, S, 1), q2 = layer(S, H, 1), w1 = layer(H, S, 1), w2 = layer(1, H, 1);
  float theta = 0, chain[CHAIN][16], kept[SLOTS][16], weight[SLOTS], x[WIDE], h[WIDE], h1[WIDE], h2[WIDE], hq[WIDE];
  float q[WIDE], pq[SLOTS], pa[16], d1[WIDE], d2[WIDE], dq[WIDE], s[16], next[16], none[16] = {0};
  double ratio[SLOTS + 1];  // g_1..g_n of the weights seen: ratios of elementary symmetric polynomials
  static double drop[SLOTS][SLOTS];
  int rank[SLOTS], right[16], place[CHAIN];
  if (S > 16) return 2;
  struct timespec begun, ended;
  clock_gettime(CLOCK_MONOTONIC, &begun);
  long t = 0, episodes = 0;
  double returns = 0;
  while (t < steps) {
    for (int i = 0; i < L; i++) place[i] = i;
    memset(chain, 0, sizeof(chain[0]) * (size_t)L);
    for (int i = 0; i < L; i++) {
      const int bits[3] = {below(A), A + 1, A + 2 + below(D)};
      for (int k = 0; k < 3; k++) chain[i][bits[k]] = 1;
    }
    for (int d = 0; d < D; d++) {
      const int k = d + below(L - d), at = place[k];
      place[k] = place[d];
      right[d] = below(A);
      memset(chain[at], 0, sizeof chain[at]);
      chain[at][right[d]] = chain[at][A] = chain[at][A + 2 + d] = 1;
    }
    memset(s, 0, sizeof s);
    int position = 0, correct = 1, filled = 0, over = 0;
    for (int k = 0; k <= n; k++) ratio[k] = 0;
    while (!over && t < steps) {
      const float tau = expf(theta);
      int slot = -1;
      if (filled) {
        apply(&q1, s, hq); squash(hq, H);
        apply(&q2, hq, q); squash(q, S);
        for (int i = 0; i < filled; i++) {
          pq[i] = 0;
          for (int b = 0; b < S; b++) pq[i] += q[b] * kept[i][b];
          pq[i] /= tau;
        }
        slot = draw(pq, filled);
      }
      const float *m = slot < 0 ? none : kept[slot];
      memcpy(x, s, sizeof(float) * (size_t)S);
      memcpy(x + S, m, sizeof(float) * (size_t)S);
      apply(&p1, x, h1); squash(h1, H);
      apply(&p2, h1, h2); squash(h2, H);
      apply(&p3, h2, pa);
      const int action = draw(pa, A), decision = position - L - 1;
      if (decision >= 0) { correct &= action == right[decision]; position++; } else position += action == 1;
      over = position > L + D;
      memset(next, 0, sizeof next);
      if (!over && position > L) next[A + 2 + position - L - 1] = next[A + 2 + D] = 1, next[A + 3 + D] = (float)correct;
      else if (!over && position > 0) memcpy(next, chain[position - 1], sizeof next);
      float out, v_next = 0;
      if (!over) { apply(&v1, next, h); squash(h, H); apply(&v2, h, &out); v_next = tanhf(out); }
      apply(&v1, s, h); squash(h, H); apply(&v2, h, &out);
      const float v = tanhf(out), delta = (float)(over && correct) + .99f * v_next - v;
      float d = delta * (1 - v * v);
      back(&v2, h, &d, d1);
      back(&v1, s, d1, NULL);
      for (int i = 0; i < A; i++) pa[i] = delta * ((float)(i == action) - pa[i]);
      back(&p3, h2, pa, d2);
      back(&p2, h1, d2, d1);
      back(&p1, x, d1, NULL);
      apply(&w1, s, h); squash(h, H); apply(&w2, h, &out);
      const double w = 1 / (1 + exp(-(double)out));
      if (slot >= 0) {
        float g_theta = 0;
        for (int b = 0; b < S; b++) {
          float mean = 0;
          for (int i = 0; i < filled; i++) mean += pq[i] * kept[i][b];
          const float apart = (m[b] - mean) / tau;
          g_theta -= q[b] * apart;
          dq[b] = delta * apart * (1 - q[b] * q[b]);
        }
        back(&q2, hq, dq, d1);
        back(&q1, s, d1, NULL);
        theta += RATE * delta * g_theta;
        apply(&w1, m, h); squash(h, H); apply(&w2, h, &out);
        const float now = 1 / (1 + expf(-out));
        d = delta * now / weight[slot] * (1 - now);
        back(&w2, h, &d, d1);
        back(&w1, m, d1, NULL);
      }
      // the memory: accept with w / (g_n + w); the oldest of equals is dropped by the chances stored with each item
      int at = -1;
      if (filled < n) at = filled++;
      else if (uniform() * (ratio[n] + w) < w) {
        int best = 0;
        for (int i = 0; i < n; i++)
          if (rank[i] > best && uniform() < drop[i][rank[i] - 1]) best = rank[i], at = i;
        if (best == 0) for (int i = 0; i < n; i++) if (rank[i] == 1) best = 1, at = i;
        for (int i = 0; i < n; i++) rank[i] -= rank[i] > best;
      }
      if (at >= 0) {
        memcpy(kept[at], s, sizeof kept[at]);
        weight[at] = (float)w;
        rank[at] = filled;
        drop[at][0] = 1;
        for (int k = 2; k <= n; k++) drop[at][k - 1] = ratio[k - 1] > 0 ? (ratio[k - 1] - ratio[k]) / (ratio[k - 1] + w) : 0;
      }
      for (int k = n; k > 1; k--) ratio[k] = ratio[k - 1] > 0 ? ratio[k - 1] * (ratio[k] + w) / (ratio[k - 1] + w) : 0;
      ratio[1] += w;
      memcpy(s, next, sizeof s);
      t++;
      if (over) { returns += correct; episodes++; }
    }
  }
  clock_gettime(CLOCK_MONOTONIC, &ended);
  const double seconds = (double)(ended.tv_sec - begun.tv_sec) + 1e-9 * (double)(ended.tv_nsec - begun.tv_nsec);
  printf("%ld %.6f %.4f\n", t, seconds, returns / (double)(episodes ? episodes : 1));
  return 0;
}
