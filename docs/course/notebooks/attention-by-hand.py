# %% en
# # Attention by hand
#
# Attention is five small steps: multiply, scale, mask, softmax, multiply. In this notebook you do each of them with
# three words and numbers that you can check in your head. Then the layer of a real Transformer gets the same numbers,
# and gives the same result, down to the last digit.
#
# It takes less than a minute. Before you start: `pip install -e '.[plot]' jupyterlab` in the folder of this
# repository. In Korean: [손으로 계산하는 어텐션](attention-by-hand.ko.ipynb).
# %% ko
# # 손으로 계산하는 어텐션
#
# 어텐션(attention)은 간단한 다섯 단계로 이루어져 있어요. 곱하기, 스케일링, 마스크(mask), 소프트맥스(softmax), 다시
# 곱하기예요. 이 노트북에서는 단어 세 개와 암산으로도 확인할 수 있는 숫자로 각 단계를 직접 계산해 봐요. 그런 다음 같은
# 숫자를 진짜 트랜스포머의 층에 넣어서, 마지막 자리까지 똑같은 결과가 나오는 것을 확인해요.
#
# 전부 실행하는 데 1분도 안 걸려요. 시작하기 전에 이 저장소의 폴더에서 `pip install -e '.[plot]' jupyterlab`을
# 실행하세요. 영어판: [Attention by hand](attention-by-hand.ipynb)
# %%
import math

import torch

from dragoman import AttentionConfig, AttentionMap, FeedForwardConfig, Transformer, TransformerConfig

torch.set_printoptions(precision=4, sci_mode=False)
# %% en
# ## Three words
#
# A model knows a word as a vector, a list of numbers. Ours have four, and the numbers are made up; a model would have
# learned them. One row is one word.
# %% ko
# ## 단어 세 개
#
# 모델에게 단어는 벡터, 곧 숫자의 목록이에요. 여기서는 단어마다 숫자가 네 개이고, 값은 지어낸 거예요. 실제 모델이라면
# 학습해서 얻었을 값이에요. 한 행이 한 단어예요.
# %%
words = ["I", "drink", "tea"]
x = torch.tensor(
    [
        [1.0, 0.0, 1.0, 0.0],
        [0.0, 1.0, 0.0, 1.0],
        [1.0, 1.0, 0.0, 0.0],
    ]
)
# %% en
# ## Query, key and value
#
# Each word plays three roles. As a **query** it asks, as a **key** it is found, and as a **value** it has something
# to say. Three matrices make the three vectors from the word. In a model these matrices are what is learned, and they
# are the same for all words.
# %% ko
# ## 쿼리, 키, 값
#
# 단어는 저마다 세 가지 역할을 해요. **쿼리**(query)로서 묻고, **키**(key)로서 검색되고, **값**(value)으로서 내용을
# 전해요. 행렬 세 개가 단어에서 이 세 벡터를 만들어요. 모델에서 학습되는 것이 바로 이 행렬들이고, 모든 단어에 같은
# 행렬을 써요.
# %%
W_query = torch.tensor([[0.0, 0, 2, 1], [1, 2, 0, 1], [0, 0, 0, 1], [0, 0, 1, 0]])
W_key = torch.tensor([[2.0, 2, 0, 0], [2, 0, 1, 1], [0, 1, 0, 0], [0, 0, 2, 0]])
W_value = torch.tensor([[1.0, 0, 0, 0], [0, 2, 0, 0], [0, 0, 1, 0], [0, 0, 0, 3]])

query, key, value = x @ W_query, x @ W_key, x @ W_value
print(query, key, value, sep="\n")
# %% en
# Check one of them: `drink` is `[0, 1, 0, 1]`, so its query is the second row of `W_query` plus the fourth, `[1, 2,
# 0, 1]` + `[0, 0, 1, 0]` = `[1, 2, 1, 1]`.
#
# ## One word, in plain Python
#
# What does `drink` attend to? Its query is compared with the key of each word: multiply number by number, and add up.
# Such an inner product is a **score**. It is large if the two vectors point in the same direction.
# %% ko
# 하나만 확인해 볼까요? `drink`는 `[0, 1, 0, 1]`이니까 그 쿼리는 `W_query`의 둘째 행과 넷째 행을 더한 `[1, 2, 0, 1]` +
# `[0, 0, 1, 0]` = `[1, 2, 1, 1]`이에요.
#
# ## 한 단어를 파이썬만으로
#
# `drink`는 어느 단어에 주목할까요? `drink`의 쿼리를 단어마다 그 키와 비교해요. 같은 자리의 숫자끼리 곱해서 모두
# 더하면 돼요. 이렇게 얻은 내적이 **점수**(score)예요. 두 벡터의 방향이 비슷하면 점수가 커요.
# %%
q = [1, 2, 1, 1]
keys = [[2, 3, 0, 0], [2, 0, 3, 1], [4, 2, 1, 1]]
scores = [sum(a * b for a, b in zip(q, k, strict=True)) for k in keys]
print(scores)
assert scores == [8, 6, 10]
# %% en
# With vectors of hundreds of numbers the scores would grow large, and the softmax below would give nearly
# everything to a single word. So they are divided by the root of the size of the vectors, here √4 = 2.
# %% ko
# 벡터에 숫자가 수백 개씩 있으면 점수가 매우 커지고, 뒤에 나올 소프트맥스는 가중치를 거의 전부 한 단어에 몰아주게
# 돼요. 그래서 점수를 벡터 크기의 제곱근으로 나눠요. 여기서는 √4 = 2예요.
# %%
scaled = [score / math.sqrt(4) for score in scores]
print(scaled)
assert scaled == [4, 3, 5]
# %% en
# The **softmax** turns scores into weights: raise e to each score, and divide by the sum. All weights are then above
# 0 and sum to 1.
# %% ko
# **소프트맥스**는 점수를 가중치로 바꿔요. e를 각 점수만큼 거듭제곱한 다음 그 합으로 나눠요. 그러면 가중치는 모두
# 0보다 크고, 다 더하면 1이 돼요.
# %%
powers = [math.exp(score) for score in scaled]
weights = [power / sum(powers) for power in powers]
print([round(power, 3) for power in powers], round(sum(powers), 3))
print([round(weight, 4) for weight in weights])
assert [round(weight, 4) for weight in weights] == [0.2447, 0.0900, 0.6652]
# %% en
# `drink` gives 0.2447 of its attention to `I`, 0.0900 to itself and 0.6652, two thirds, to `tea`. The differences
# between the scores decide: one more gives e ≈ 2.718 times the weight.
#
# The result is the **weighted sum** of the values: a little of `I`, very little of `drink`, much of `tea`.
# %% ko
# `drink`는 가중치의 0.2447을 `I`에, 0.0900을 자기 자신에, 그리고 3분의 2인 0.6652를 `tea`에 줘요. 가중치를 정하는
# 것은 점수들의 차이예요. 점수가 1만큼 높으면 가중치는 e ≈ 2.718배가 돼요.
#
# 출력은 값들의 **가중합**(weighted sum)이에요. `I`를 조금, `drink`를 아주 조금, `tea`를 많이 섞은 거예요.
# %%
values = [[1, 0, 1, 0], [0, 2, 0, 3], [1, 2, 0, 0]]
result = [sum(w * v[i] for w, v in zip(weights, values, strict=True)) for i in range(4)]
print([round(number, 4) for number in result])
# %% en
# ## All words at once
#
# For all three words together it takes two matrix products and a softmax. No word waits for another, so all of them
# can be computed at the same time.
#
# $$\text{Attention}(Q, K, V) = \text{softmax}\left(\frac{Q K^\top}{\sqrt{d_k}}\right) V$$
# %% ko
# ## 모든 단어를 한꺼번에
#
# 세 단어를 모두 계산하는 데 행렬 곱 두 번과 소프트맥스 한 번이면 충분해요. 어떤 단어도 다른 단어를 기다리지 않으니까
# 동시에 계산할 수 있어요.
#
# $$\text{Attention}(Q, K, V) = \text{softmax}\left(\frac{Q K^\top}{\sqrt{d_k}}\right) V$$
# %%
scores = query @ key.T
weights = (scores / math.sqrt(4)).softmax(-1)
output = weights @ value
print(scores, weights, output, sep="\n")

torch.testing.assert_close(output[1], torch.tensor(result))
# %% en
# The second row of each is what you computed by hand. As a picture: a row for each word that looks, a column for each
# word that is looked at.
# %% ko
# 각 결과의 둘째 행이 방금 손으로 계산한 값이에요. 그림으로 보면 행은 보는 단어, 열은 보이는 단어예요.
# %%
AttentionMap(weights, words, words, "softmax(Q Kᵀ / √d_k)")
# %% en
# What if the scores are not divided? The order stays the same, but the largest takes nearly all.
# %% ko
# 점수를 나누지 않으면 어떻게 될까요? 순서는 그대로지만 가장 큰 점수가 거의 전부를 가져가요.
# %%
unscaled = scores.softmax(-1)
print(unscaled)
assert (unscaled.amax(-1) > weights.amax(-1)).all()
# %% en
# ## The mask
#
# A decoder writes one word after another, so in training it must not look at words that are still to come. Their
# scores are set to minus infinity *before* the softmax. As e to the power of minus infinity is 0, they get no weight
# at all, and the others still sum to 1.
# %% ko
# ## 마스크
#
# 디코더는 단어를 하나씩 차례로 써요. 그래서 학습할 때 아직 나오지 않은 단어를 보면 안 돼요. 그런 단어의 점수는
# 소프트맥스 *전에* 음의 무한대로 바꿔요. e의 −∞제곱은 0이니까 가중치를 전혀 받지 못하고, 나머지 가중치의 합은 여전히
# 1이에요.
# %%
may_attend = torch.ones(3, 3, dtype=torch.bool).tril()
masked = (scores / math.sqrt(4)).masked_fill(~may_attend, -math.inf).softmax(-1)
print(masked)
assert masked[0].tolist() == [1, 0, 0]
AttentionMap(masked, words, words, "softmax(Q Kᵀ / √d_k + mask)")
# %% en
# `I` can only look at itself. `drink` no longer sees `tea`, and shares its attention between the other two, 0.7311
# and 0.2689. `tea` sees all three as before.
# %% ko
# `I`는 자기 자신만 볼 수 있어요. `drink`는 이제 `tea`를 보지 못하고, 나머지 두 단어에 0.7311과 0.2689를 나눠 줘요.
# `tea`는 전처럼 세 단어를 모두 봐요.
# %% en
# ## The same in a Transformer
#
# Now a real one: an encoder and a decoder of one layer each, vectors of four numbers, one head. Its first attention
# layer has three linear maps, `query`, `key` and `value`, and we put our matrices there. (PyTorch multiplies by the
# transpose, hence `.T`.)
# %% ko
# ## 트랜스포머에서도 똑같이
#
# 이제 진짜 트랜스포머를 만들어요. 인코더와 디코더가 한 층씩이고, 벡터에는 숫자가 네 개, 헤드(head)는 하나예요. 첫
# 어텐션 층에는 선형 변환 `query`, `key`, `value`가 있는데, 여기에 우리 행렬을 넣어요. (파이토치는 전치한 행렬을
# 곱하기 때문에 `.T`를 붙여요.)
# %%
torch.manual_seed(1)
torch.set_grad_enabled(False)
config = TransformerConfig(
    d_model=4,
    encoder_layers=1,
    decoder_layers=1,
    attention=AttentionConfig(heads=1),
    feed_forward=FeedForwardConfig(d_ff=8),
)
model = Transformer(config, vocabulary=10).eval()
layer = model.encoder[0].attention
for linear, matrix in ((layer.query, W_query), (layer.key, W_key), (layer.value, W_value)):
    linear.weight.copy_(matrix.T)
layer
# %% en
# The layer's `kernel` is the function that compares and mixes. It takes batches of heads, so our matrices get two
# dimensions of size 1 in front. With and without the mask it gives our output, up to rounding: it adds the same numbers
# in another order.
# %% ko
# 이 층의 `kernel`이 비교하고 섞는 일을 하는 함수예요. 배치와 헤드 차원이 있는 입력을 받기 때문에, 우리 행렬 앞에
# 크기가 1인 차원 두 개를 붙여요. 마스크가 있을 때도 없을 때도 우리가 계산한 출력과 같아요. 같은 수를 다른 순서로
# 더하기 때문에 반올림 오차만 달라요.
# %%
batch = x[None, None]
theirs = layer.kernel(layer.query(batch), layer.key(batch), layer.value(batch), None, 0.0)
print(theirs[0, 0])
assert torch.allclose(theirs[0, 0], output)

theirs = layer.kernel(layer.query(batch), layer.key(batch), layer.value(batch), may_attend, 0.0)
assert torch.allclose(theirs[0, 0], masked @ value)


# %% en
# ## Your function in the model
#
# The other way round works, too: put your own function into all three attention layers of the model. The numbers that
# come out at its end stay the same.
# %% ko
# ## 내 함수를 모델에 넣기
#
# 거꾸로도 할 수 있어요. 내가 만든 함수를 모델의 세 어텐션 층에 모두 넣어 보세요. 모델의 맨 끝에서 나오는 숫자는
# 그대로예요.
# %%
def by_hand(query, key, value, mask=None, dropout=0.0):
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return scores.softmax(-1) @ value


source, target = torch.tensor([[5, 6, 7, 2]]), torch.tensor([[1, 8, 9]])
before = model(source, target)
for layer in (model.encoder[0].attention, model.decoder[0].attention, model.decoder[0].cross_attention):
    layer.kernel = by_hand
after = model(source, target)
print(after.shape)
torch.testing.assert_close(after, before)
# %% en
# A control, so that you can trust this: without the division by the root, the numbers do change.
# %% ko
# 믿을 만한 비교인지도 확인해 봐요. 제곱근으로 나누지 않으면 숫자가 달라져요.
# %%
for layer in (model.encoder[0].attention, model.decoder[0].attention, model.decoder[0].cross_attention):
    layer.kernel = lambda query, key, value, mask, dropout: by_hand(2 * query, key, value, mask)
assert not torch.allclose(model(source, target), before)
# %% en
# ## Try it yourself
#
# - Change one number in `W_key` so that `drink` attends to `I` most. Guess the weights before you run the cells
#   again.
# - Make `W_key` equal to `W_query`. Which word does each one attend to now, and why is the table of scores symmetric?
# - Swap the rows of `x`. What happens to the rows of the output? (This is why a Transformer needs positions.)
#
# Next: [train a small translator and look inside](train-and-look.ipynb). The same idea with formulas and
# measurements: stops 3 to 5 of [the tour](../tour.md).
# %% ko
# ## 직접 해 보기
#
# - `W_key`의 숫자 하나를 바꿔서 `drink`가 `I`에 가장 주목하게 만들어 보세요. 셀을 다시 실행하기 전에 가중치를 먼저
#   어림해 보세요.
# - `W_key`를 `W_query`와 같게 만들어 보세요. 이제 단어들은 각각 어디에 주목하나요? 점수 표가 대칭이 되는 까닭은
#   무엇일까요?
# - `x`의 행들을 서로 바꿔 보세요. 출력의 행들은 어떻게 되나요? (트랜스포머에 위치 정보가 필요한 이유예요.)
#
# 다음은 [작은 번역기를 학습하고 들여다보기](train-and-look.ko.ipynb)예요. 같은 내용을 수식과 측정 결과로 보려면
# [둘러보기](../tour.ko.md)의 3~5장을 읽어 보세요.
