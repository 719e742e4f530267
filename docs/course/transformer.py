"""The Transformer of "Attention Is All You Need" in one file, with the paper's symbols. It needs PyTorch, nothing else.

Run it: it learns to write words backwards, in about a minute on one core. Its outputs and gradients are those of
`dragoman.model`, to the last bit (tests/model/test_one_file.py). SLIP: a mistake often made at that place.
실행하면 글자를 거꾸로 쓰는 법을 코어 하나로 1분쯤 배워요. 출력도 기울기도 `dragoman.model`과 비트 하나까지 같아요.
'실수'는 그 자리에서 흔히 하는 실수예요. 모양: B 문장, T 목표 토큰, S 원문 토큰, h 헤드, V 단어.
Shapes: B sentences, T target tokens, S source tokens, h heads, V words.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PAD, BOS, EOS = 0, 1, 2  # ids of padding, beginning and end / 패딩, 시작, 끝의 번호


def attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor) -> Tensor:
    """Equation 1, softmax(Q Kᵀ / √d_k) V: Q (B, h, T, d_k), K (B, h, S, d_k), V (B, h, S, d_v), mask (B, 1, T, S)."""
    d_k = Q.size(-1)
    scores = Q @ K.transpose(-2, -1) / math.sqrt(d_k)  # (B, h, T, S). SLIP: by d_k / 실수: d_k로 나누기
    # SLIP: scores * 1e-9 (0 still gets weight); -1e9 (does not fit into float16); True = hidden (here: may attend).
    # 실수: 1e-9 곱하기(0인 점수도 가중치를 받아요), -1e9(float16에 안 들어가요), True = 가림(여기서는 봐도 됨).
    scores = scores.masked_fill(~mask, -math.inf)
    # SLIP: dim=-2 or dim=1. Each query's weights over the keys sum to 1. 실수: dim=-2나 dim=1. 합이 1인 것은 행이에요.
    return scores.softmax(dim=-1) @ V


class MultiHeadAttention(nn.Module):
    """Section 3.2.2. All h heads are one product: W_Q holds W_1^Q ... W_h^Q side by side. 모든 헤드를 곱 한 번으로."""

    def __init__(self, d_model: int, h: int):
        super().__init__()
        self.h, d_k = h, d_model // h  # d_v = d_k
        self.W_Q, self.W_K, self.W_V = (nn.Linear(d_model, h * d_k, bias=False) for _ in range(3))
        self.W_O = nn.Linear(h * d_k, d_model, bias=False)  # SLIP: left out / 실수: 빠뜨리기

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        # Queries come from x, keys and values from memory: x itself (self-attention) or the encoder's output (cross).
        # 쿼리는 x에서, 키와 값은 memory에서 와요. memory는 x 자신(셀프 어텐션)이거나 인코더의 출력(교차 어텐션)이에요.
        K, V, Q = self.W_K(memory), self.W_V(memory), self.W_Q(x)
        # SLIP: view(B, h, T, d_k) has the right shape and mixes words with heads. 실수: view는 단어와 헤드를 뒤섞어요.
        Q, K, V = (y.unflatten(-1, (self.h, -1)).transpose(1, 2) for y in (Q, K, V))  # (B, h, T or S, d_k)
        return self.W_O(attention(Q, K, V, mask).transpose(1, 2).flatten(2))  # [head_1; ...; head_h] W^O


class FeedForward(nn.Module):
    """Equation 2, max(0, x W_1 + b_1) W_2 + b_2: the same at every position. 위치마다 똑같이 적용해요."""

    def __init__(self, d_model: int, d_ff: int):
        super().__init__()
        self.W_1, self.W_2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.W_2(F.relu(self.W_1(x)))  # SLIP: another ReLU at the end / 실수: 끝에도 ReLU


class AddAndNorm(nn.Module):
    """Section 3.1, LayerNorm(x + Dropout(Sublayer(x))), with a mean for each token. 토큰마다 평균을 내요."""

    def __init__(self, d_model: int, P_drop: float):
        super().__init__()
        self.norm, self.dropout = nn.LayerNorm(d_model), nn.Dropout(P_drop)

    def forward(self, x: Tensor, f_x: Tensor) -> Tensor:
        # SLIP: dropout(x + f_x) drops the residual, too. With pre-norm, x + f(norm(x)), no norm at the end.
        # 실수: dropout(x + f_x)는 잔차까지 지워요. x + f(norm(x)), 곧 pre-norm에서 맨 끝의 정규화를 빠뜨리기.
        return self.norm(x + self.dropout(f_x))


class EncoderLayer(nn.Module):
    """Figure 1, left: two sublayers. 그림 1의 왼쪽, 하위 층 둘."""

    def __init__(self, d_model: int, h: int, d_ff: int, P_drop: float):
        super().__init__()
        self.attention, self.feed_forward = MultiHeadAttention(d_model, h), FeedForward(d_model, d_ff)
        self.add_norm_1, self.add_norm_2 = AddAndNorm(d_model, P_drop), AddAndNorm(d_model, P_drop)

    def forward(self, x: Tensor, source_mask: Tensor) -> Tensor:
        x = self.add_norm_1(x, self.attention(x, x, source_mask))
        return self.add_norm_2(x, self.feed_forward(x))


class DecoderLayer(nn.Module):
    """Figure 1, right: three sublayers. 그림 1의 오른쪽, 하위 층 셋."""

    def __init__(self, d_model: int, h: int, d_ff: int, P_drop: float):
        super().__init__()
        self.attention, self.cross_attention = MultiHeadAttention(d_model, h), MultiHeadAttention(d_model, h)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.add_norm_1, self.add_norm_2, self.add_norm_3 = (AddAndNorm(d_model, P_drop) for _ in range(3))

    def forward(self, x: Tensor, memory: Tensor, target_mask: Tensor, source_mask: Tensor) -> Tensor:
        x = self.add_norm_1(x, self.attention(x, x, target_mask))
        # SLIP: add the layer's input again instead of the x above. Of the source only the padding is hidden.
        # 실수: 바로 위의 x 대신 층의 입력을 다시 더하기. 원문에서는 패딩만 가려요.
        x = self.add_norm_2(x, self.cross_attention(x, memory, source_mask))
        return self.add_norm_3(x, self.feed_forward(x))


def positional_encoding(length: int, d_model: int) -> Tensor:
    """Section 3.5: PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(pos / 10000^(2i/d_model))."""
    pos = torch.arange(length, dtype=torch.float64)[:, None]
    two_i = torch.arange(0, d_model, 2, dtype=torch.float64)  # SLIP: i, without the 2 / 실수: 2 없이 i
    angle = pos * torch.exp(two_i * (-math.log(10000.0) / d_model))
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).to(torch.get_default_dtype())


class Transformer(nn.Module):
    """Figure 1, from ids to logits, for V words of both languages together. 두 언어가 단어 V개를 함께 써요."""

    def __init__(self, V: int, d_model: int = 512, N: int = 6, h: int = 8, d_ff: int = 2048, P_drop: float = 0.1):
        super().__init__()
        self.W_E = nn.Embedding(V, d_model, padding_idx=PAD)  # both embeddings and the output / 임베딩 둘과 출력이 함께
        # SLIP: [layer] * N is one layer, N times: all of them share its weights. 실수: [layer] * N은 같은 층 하나예요.
        self.encoder = nn.ModuleList(EncoderLayer(d_model, h, d_ff, P_drop) for _ in range(N))
        self.decoder = nn.ModuleList(DecoderLayer(d_model, h, d_ff, P_drop) for _ in range(N))
        self.dropout = nn.Dropout(P_drop)
        for W in (p for p in self.parameters() if p.dim() > 1):
            nn.init.xavier_uniform_(W)
        # SLIP: PyTorch's N(0, 1): times √d_model far too large, and so are the logits. 실수: N(0, 1)은 너무 커요.
        nn.init.normal_(self.W_E.weight, std=d_model**-0.5)

    def embed(self, ids: Tensor) -> Tensor:
        d_model = self.W_E.embedding_dim
        # SLIP: without √d_model positions drown the words; torch.Tensor(512) is 512 numbers, not the number 512.
        # 실수: √d_model이 없으면 단어가 위치에 묻혀요. torch.Tensor(512)는 수 512가 아니라 숫자 512개예요.
        x = self.W_E(ids) * math.sqrt(d_model)
        return self.dropout(x + positional_encoding(ids.size(1), d_model).to(x))

    def encode(self, source: Tensor) -> Tensor:  # (B, S) -> (B, S, d_model)
        x = self.embed(source)
        for layer in self.encoder:
            x = layer(x, padding_mask(source))
        return x

    def decode(self, target: Tensor, memory: Tensor, source: Tensor) -> Tensor:
        """Return logits (B, T, V): after each target token, the scores of the next one. 토큰마다 다음 토큰의 점수."""
        look_ahead = torch.ones(target.size(1), target.size(1), dtype=torch.bool).tril().to(target.device)
        x = self.embed(target)  # the mask look_ahead hides later words / look_ahead는 뒤의 단어를 가려요
        for layer in self.decoder:
            x = layer(x, memory, padding_mask(target) & look_ahead, padding_mask(source))
        return F.linear(x, self.W_E.weight)  # SLIP: softmax here, and again in the loss / 실수: 소프트맥스를 두 번


def padding_mask(ids: Tensor) -> Tensor:
    return (ids != PAD)[:, None, None, :]  # (B, 1, 1, S): hides keys, the columns / 키, 곧 열을 가려요


def loss(model: Transformer, source: Tensor, target: Tensor, epsilon_ls: float = 0.1) -> Tensor:
    """Return the mean cross-entropy (section 5.4) of real tokens; target (B, T) is BOS ... EOS, padded."""
    # SLIP: no shift. The decoder reads BOS y_1 y_2 and has to write y_1 y_2 EOS. 실수: 한 칸 밀지 않기.
    logits = model.decode(target[:, :-1], model.encode(source), source)
    labels = target[:, 1:].flatten()  # SLIP: padding counts in the loss / 실수: 손실에 패딩도 넣기
    return F.cross_entropy(logits.flatten(0, 1), labels, ignore_index=PAD, label_smoothing=epsilon_ls)


@torch.no_grad()
def greedy(model: Transformer, source: Tensor, steps: int) -> Tensor:
    """Return ids (B, steps), each the most probable after those before. 매번 가장 그럴듯한 토큰을 골라요."""
    model.eval()  # SLIP: left out, dropout goes on / 실수: 빠뜨리면 드롭아웃이 계속돼요
    memory, output = model.encode(source), torch.full((len(source), 1), BOS)
    for _ in range(steps):
        best = model.decode(output, memory, source)[:, -1:].argmax(-1)
        output = torch.cat([output, best.masked_fill((output == EOS).any(1, keepdim=True), PAD)], dim=1)
    return output[:, 1:]


def main(steps: int = 1200, longest: int = 8, letters: int = 26, warmup_steps: int = 300) -> float:
    """Learn to write words backwards; return the share of 200 new words that come out right."""

    def batch(words: int) -> list[Tensor]:
        ids = [torch.randint(3, 3 + letters, (n,)).tolist() for n in torch.randint(1, longest + 1, (words,)).tolist()]
        sides = [[*x, EOS] for x in ids], [[BOS, *x[::-1], EOS] for x in ids]
        return [torch.tensor([row + [PAD] * (longest + 2 - len(row)) for row in side]) for side in sides]

    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = Transformer(V=3 + letters, d_model=64, N=2, h=4, d_ff=256)
    adam = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    for step in range(1, steps + 1):  # SLIP: from 0: 0^-0.5 has no value / 실수: 0부터 세기
        adam.param_groups[0]["lr"] = 64**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)  # equation 3 / 식 3
        value = loss(model, *batch(64))
        adam.zero_grad()  # SLIP: left out, gradients add up / 실수: 빠뜨리면 기울기가 쌓여요
        value.backward()
        adam.step()
        if step % 100 == 0:
            print(f"step 단계 {step:4}   loss 손실 {value.item():.3f}")
    source, target = batch(200)
    output = greedy(model, source, longest + 1)
    for rows in zip(source[:5].tolist(), output[:5].tolist(), strict=True):
        print(" -> ".join("".join(chr(i + 94) for i in row if i > EOS) for row in rows))
    right = (output == target[:, 1:]).all(1)
    print(f"right 정답: {right.sum()} / {len(right)}")
    return right.double().mean().item()


if __name__ == "__main__":
    main()
