// The ranking of `satchel search --hub` by words, in the browser: the same terms, weights and BM25
// scores as in `satchel.detect`, without a segmenter of Chinese words. `WORDS` precedes this file.
"use strict";

const DENSE = "\\u0e00-\\u0eff\\u1000-\\u109f\\u1780-\\u17ff\\u2e80-\\u2fff\\u3005-\\u3007\\u3040-\\u312f\\u3130-\\u318f"
  + "\\u31a0-\\u31ff\\u3400-\\u9fff\\ua960-\\ua97f\\uac00-\\ud7ff\\uf900-\\ufaff\\u{20000}-\\u{3ffff}";
const LETTER = `(?![${DENSE}])[\\p{L}\\p{N}]`;
const PIECE = new RegExp(`[${DENSE}]+|${LETTER}(?:${LETTER}|\\p{M})*`, "gu");
const IS_DENSE = new RegExp(`^[${DENSE}]`, "u");
const OPTIONAL_SIGNS = /[\u0591-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06ed]/g;
const HUMP = /(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])(?![A-Z]s(?![a-z]))/g;
const HUMPED_RUN = /(?<![A-Za-z0-9])[A-Za-z0-9]*?(?:[a-z0-9][A-Z]|[A-Z]{2}[a-z])[A-Za-z0-9]*/g;
const SIGNED_NAMES = { "c++": "cpp", "c#": "csharp", "f#": "fsharp", ".net": "dotnet" };
const SIGNED_NAME = /(?<![a-z0-9_.])(?:c\+\+(?![a-z+])|[cf]#(?![a-z0-9#])|\.net(?![a-z0-9_]))/g;
const MAX_TERM_CHARS = 40;
const FIELDS = { name: 0.7, description: 1.0 };
const K1 = 1.2;
const B = 0.75;
const MAX_SMALL_LIBRARY = 2000;
const STOPWORDS = new Set(WORDS.stop);
const DENSE_STOPWORDS = new Set(WORDS.dense);
const STOP_SIGNS = new Set(WORDS.signs);
const COMMON_NAME_WORDS = new Set(WORDS.linking);

function pieces(text) {
  const isPlain = /^[\x00-\x7f]*$/.test(text);
  let plain = isPlain ? text : text.normalize("NFKC").replace(OPTIONAL_SIGNS, "");
  if (/[a-z0-9][A-Z]|[A-Z]{2}[a-z]/.test(plain)) {
    plain = plain.replace(HUMPED_RUN, (word) => {
      const split = word.replace(HUMP, " ");
      return word.length > 2 * MAX_TERM_CHARS || split === word ? word : `${word.toLowerCase()} ${split}`;
    });
  }
  let lowered = plain.toLowerCase();
  if (/#|c\+\+|\.net/.test(lowered)) lowered = lowered.replace(SIGNED_NAME, (name) => ` ${SIGNED_NAMES[name]} `);
  return lowered.replace(/['\u2019]/g, "").match(isPlain ? /[a-z0-9]+/g : PIECE) ?? [];
}

const DERIVATIONS = [
  ["ization", "iz"], ["isation", "iz"], ["mentation", "ment"], ["ation", "at"], ["ator", "at"],
  ["fulness", "ful"], ["iveness", "iv"], ["ness", ""], ["ally", "al"], ["ly", ""], ["able", ""],
  ["ible", ""], ["ance", ""], ["ence", ""], ["ion", ""],
];
const AMERICAN = { ys: "yz", is: "iz", our: "or", ogu: "og" };

function withoutPlural(word) {
  if (/(?:sses|xes)$/.test(word) || (word.endsWith("ies") && word.length > 4)) return word.slice(0, -2);
  if (!word.endsWith("s") || word.endsWith("ss")) return word;
  const isSingular = word.length > 4 || ["axis", "iris", "onus", "opus", "plus", "this", "thus"].includes(word);
  return /[ui]s$/.test(word) && isSingular ? word : word.slice(0, -1);
}

function withoutSuffix(word) {
  let cut = 0;
  if (word.endsWith("ing") && word.length > 5) cut = 3;
  else if (word.endsWith("ed") && !word.endsWith("eed") && word.length > 4) cut = 2;
  const start = word.slice(0, word.length - cut);
  if (!cut || !/[aeiouy]/.test(start)) return word;
  if (start.length >= 4 && /([^lsz])\1$/.test(start)) return start.slice(0, -1);
  return /^[^aeiouy][aeiouy][^aeiouywx]$/.test(start) ? `${start}e` : start;
}

const stems = new Map();

function stem(word) {
  let found = stems.get(word);
  if (found === undefined) stems.set(word, found = newStem(word));
  return found;
}

function newStem(word) {
  if (["emojis", "kiwis", "menus", "taxis", "wikis"].includes(word)) return word.slice(0, -1);
  if (word.length < 4 || word === "stats" || !/^[a-z]+$/.test(word)) return word;
  let short = withoutSuffix(withoutPlural(word));
  const derived = DERIVATIONS.find(([ending]) => short.endsWith(ending) && short.length - ending.length >= 4);
  if (derived) short = short.slice(0, short.length - derived[0].length) + derived[1];
  else if (short.length > 9 && short.endsWith("ement")) short = short.slice(0, -5);
  if (short.length > 4 && short.endsWith("e")) short = short.slice(0, -1);
  if (short.length >= 4 && short.endsWith("y")) short = `${short.slice(0, -1)}i`;
  return short.replace(/(?:(?<=\w{4})(?:ys|(?<!s)is|ogu)|(?<=\w{3})our)$/, (ending) => AMERICAN[ending]);
}

const pairs = (signs) => signs.slice(1).map((sign, at) => signs[at] + sign);

/** The terms of a text, with repetitions. */
function terms(text) {
  return pieces(text).flatMap((piece) => {
    if (!IS_DENSE.test(piece)) return piece.length <= MAX_TERM_CHARS ? [stem(piece)] : [];
    const signs = [...piece];
    return [...signs, ...pairs(signs)];
  });
}

/** The terms of a request with their weights. */
function weighted(text, isNameWord) {
  const weights = new Map();
  const add = (term, weight) => weights.set(term, Math.max(weight, weights.get(term) ?? 0));
  const words = pieces(text);
  for (const piece of words) {
    if (STOPWORDS.has(piece)) continue;
    if (!IS_DENSE.test(piece)) {
      if (piece.length <= MAX_TERM_CHARS) add(stem(piece), 1);
      continue;
    }
    const signs = [...piece];
    for (const pair of pairs(signs)) {
      if (!DENSE_STOPWORDS.has(pair) && ![...pair].every((sign) => STOP_SIGNS.has(sign))) add(pair, 1);
    }
    for (const sign of signs) if (!STOP_SIGNS.has(sign)) add(sign, 0.3);
  }
  for (const [, word] of text.matchAll(/\b[a-z]+,?\s([A-Z][a-z]+|IT)\b/g)) {
    const lowered = word.toLowerCase();
    if (STOPWORDS.has(lowered) && !WORDS.never.includes(lowered) && !weights.has(stem(lowered))) weights.set(stem(lowered), 0.8);
  }
  if (weights.size) {
    for (const word of words) {
      const counts = STOPWORDS.has(word) && !COMMON_NAME_WORDS.has(word) && isNameWord(word);
      if (counts && !weights.has(stem(word))) weights.set(stem(word), 0.3);
    }
  }
  return weights;
}

const nameKey = (text) => ` ${text.normalize("NFKC").toLowerCase().split(/[\x00-/:-@[-`{-\x7f]+/).filter(Boolean).join(" ")} `;

/** An index of skills; `rank` returns those with a word of the request, best first. */
class Ranker {
  constructor() {
    this.rows = [];
    this.postings = { name: new Map(), description: new Map() };
    this.lengths = { name: [], description: [] };
    this.totals = { name: 0, description: 0 };
  }

  add(row) {
    const number = this.rows.push(row) - 1;
    row.key = nameKey(row.name);
    row.low = `${row.name} ${row.description}`.toLowerCase();
    for (const field of Object.keys(FIELDS)) {
      const counts = new Map();
      const all = terms(row[field]);
      for (const term of all) counts.set(term, (counts.get(term) ?? 0) + 1);
      for (const [term, count] of counts) {
        const posting = this.postings[field].get(term);
        if (posting) posting.push(number, count);
        else this.postings[field].set(term, [number, count]);
      }
      this.lengths[field].push(all.length);
      this.totals[field] += all.length;
    }
  }

  isNameWord(word) {
    if (this.rows.length > MAX_SMALL_LIBRARY || !/^[\x00-\x7f]+$/.test(word)) return false;
    const count = this.rows.filter((row) => row.key.includes(` ${word} `)).length;
    return count > 0 && count <= Math.max(2, Math.floor(this.rows.length / 20));
  }

  rank(text) {
    const scores = new Map();
    const weights = weighted(text, (word) => this.isNameWord(word));
    for (const [field, share] of Object.entries(FIELDS)) {
      const average = this.totals[field] / this.rows.length;
      for (const [term, weight] of weights) {
        const posting = this.postings[field].get(term) ?? []; // row and count, row and count, …
        const matching = posting.length / 2;
        const rarity = Math.log(1 + (this.rows.length - matching + 0.5) / (matching + 0.5));
        for (let at = 0; at < posting.length; at += 2) {
          const [number, count] = [posting[at], posting[at + 1]];
          const norm = K1 * (1 - B + (B * this.lengths[field][number]) / average);
          const score = (share * weight * rarity * count * (K1 + 1)) / (count + norm);
          scores.set(number, (scores.get(number) ?? 0) + score);
        }
      }
    }
    const key = nameKey(text);
    const literal = text.toLowerCase().split(/\s+/).filter(Boolean);
    const places = this.rows.flatMap((row, number) => {
      // Whoever types has not finished the last word: parts of words come after all others.
      const isPart = !scores.has(number) && literal.length && literal.every((word) => row.low.includes(word));
      if (!scores.has(number) && !isPart) return [];
      return [[row.key === key ? Infinity : scores.get(number) ?? 0, row]];
    });
    return places.sort((a, b) => b[0] - a[0] || (a[1].name < b[1].name ? -1 : 1)).map(([, row]) => row);
  }
}
