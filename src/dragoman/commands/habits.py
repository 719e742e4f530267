"""What other toolkits call our flags: fairseq, Hugging Face Transformers, OpenNMT, Marian, JoeyNMT, CTranslate2 and
LibreTranslate. And which flags are not needed here.
"""

# A flag of ours, then the words that lead to it. If several lead from one word, the first that a command has counts.
TABLE = """
--training.learning-rate: lr learn-rate initial-learning-rate eta
--training.schedule: lr-scheduler lr-scheduler-type scheduler scheduling decay-method lr-decay
--training.warmup: warmup-steps warmup-updates warmup-ratio lr-warmup learning-rate-warmup warmup-init-lr
--training.beta2: adam-betas adam-beta2 optimizer-params
--training.clip: clip-norm max-grad-norm gradient-clip-val clip-grad-norm
--training.label-smoothing: label-smoothing-factor smoothing
--training.epochs: max-epoch max-epochs num-epochs num-train-epochs after-epochs
--training.max-steps: max-update max-updates train-steps num-steps after-batches after
--training.minutes: stop-min-time max-time
--training.batch-tokens: batch-size mini-batch batch per-device-train-batch-size train-batch-size mini-batch-fit
--training.micro-batches: update-freq accum-count gradient-accumulation-steps batch-multiplier optimizer-delay
--training.max-tokens: max-length max-source-length max-src-len max-sent-length max-source-positions src-seq-length
--training.precision: fp16 bf16 amp half mixed-precision model-dtype
--training.device: gpu gpus cuda use-cuda no-cuda cpu devices world-size gpu-ranks
--device: gpu gpus cuda use-cuda no-cuda cpu devices
--training.threads: cpu-threads num-threads
--training.workers: num-workers
--threads: cpu-threads num-threads num-workers
--training.seed: random-seed manual-seed
--seed: random-seed manual-seed
--training.patience: early-stopping early-stop early-stopping-patience
--training.stop-on: best-checkpoint-metric metric-for-best-model early-stopping-metric
--training.validate-every: valid-freq valid-steps validation-freq eval-steps validate-interval validate-interval-updates
--training.save-every: save-freq save-interval save-steps save-interval-updates save-checkpoint-steps
--training.keep: keep-checkpoint keep-last-epochs keep-best save-total-limit keep-best-ckpts
--training.ema: exponential-smoothing ema-decay moving-average average-decay
--training.tensorboard: tensorboard-logdir tensorboard-log-dir
--training.checkpoint-activations: gradient-checkpointing
--training.shard: fsdp deepspeed ddp-backend
--training.samples: print-valid-sents
--model.d-model: hidden-size rnn-size word-vec-size dim-emb embed-dim embedding-dim encoder-embed-dim dim-model
--model.feed-forward.d-ff: ffn-dim transformer-ff transformer-dim-ffn encoder-ffn-embed-dim encoder-ffn-dim ff-size
--model.feed-forward.activation: activation-fn activation-function pos-ffn-activation-fn
--model.attention.heads: num-heads transformer-heads encoder-attention-heads attention-heads
--model.attention.dropout: attention-dropout
--model.encoder-layers: layers num-layers enc-layers enc-depth num-encoder-layers
--model.decoder-layers: dec-layers dec-depth num-decoder-layers
--model.layers: num-layers enc-layers enc-depth
--model.dropout: transformer-dropout
--model.share: tied-embeddings tied-embeddings-all share-embeddings share-all-embeddings tie-word-embeddings
--model.norm-first: encoder-normalize-before layer-norm
--model.positions: position-encoding max-relative-positions
--preset: arch architecture model-type config-name task
--vocabulary: vocab vocabs vocab-size src-vocab-size dim-vocabs bpe-size num-symbols
--languages: source-lang target-lang src-lang tgt-lang source-language target-language sl tl langs lang-pairs
--init-from: restore-file train-from pretrained-model finetune-from-model model-name-or-path load-model
--train: train-data train-sets train-file train-path train-src train-corpus trainpref data data-path source
--dev: valid valid-data valid-sets valid-src validpref validation-file val dev-data eval-file
--teacher: m model teacher-model
--test: test-file testpref test-data
--model: model-dir model-path model-name-or-path models path checkpoint load-from
--out: model-dir model-path save-dir save-model save-path output-dir out-dir checkpoint-dir output o
--input: input-file src source source-file
--output: out output-file out-file save-translations
--quiet: silent no-progress-bar
--beam: beam-size num-beams beams
--n-best: nbest num-return-sequences num-hypotheses hypotheses alternatives num-alternatives candidates
--length-penalty: lenpen alpha beam-alpha normalize
--coverage-penalty: coverage beta stepwise-penalty
--extra-length: max-len max-len-b max-length max-new-tokens max-output-length max-decoding-length max-length-factor
--min-length: min-len min-new-tokens min-decoding-length
--no-repeat-ngram: no-repeat-ngram-size block-ngram-repeat
--beam-groups: num-beam-groups diverse-beam-groups
--diversity-penalty: diverse-beam-strength
--temperature: sampling do-sample sample output-sampling random-sampling-temp
--top-k: sampling-topk topk random-sampling-topk
--top-p: sampling-topp topp random-sampling-topp
--prefix: prefix-size forced-prefix
--forbid: bad-words bad-words-ids
--glossary: constraints force-words-ids lexical-constraints
--alignment: report-align print-alignment return-alignment
--word-scores: with-word-scores word-level-scores print-attn-confidence
--compute-type: int8 quantize quantization fp16 bf16 half
--engine: backend
--json: output-json
"""
HABITS: dict[str, list[str]] = {}
for flag, words in (line.split(": ") for line in TABLE.strip().split("\n")):
    for word in words.split():
        HABITS.setdefault(word, []).append(flag)

# Commands, the flags of other toolkits that they need not have, and why.
NEEDLESS_TABLE = """
translate evaluate score align: source-lang target-lang src-lang tgt-lang sl tl: a model has its languages; leave it out
translate evaluate: batch-size batch max-batch-size mini-batch: batches are as large as is fast; leave it out
split: seed: the same pairs are always split in the same way; leave it out
check split: train: name the corpora without a flag
train: resume resume-from-checkpoint continue auto-resume load-checkpoint: the same command resumes a run; leave it out
"""
NEEDLESS = {
    (command, flag): why
    for commands, flags, why in (line.split(": ") for line in NEEDLESS_TABLE.strip().split("\n"))
    for command in commands.split()
    for flag in flags.split()
}
