/* The query language in the search box: is it one, which words does it have, and what may come next. */
import type { QueryLanguage, VerbHelp } from "../../api/types";

export type TokenKind = "verb" | "keyword" | "table" | "text" | "number" | "plain";

export interface Token {
  kind: TokenKind;
  text: string;
  start: number;
}

export interface Completion {
  /** The part of the text that an option replaces. */
  start: number;
  end: number;
  options: readonly string[];
  /** Ask the server for keys that begin with this. */
  keyPrefix: string | null;
}

const SQL_VERBS = ["SELECT", "WITH"];
const PARTS = /"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?|[\p{L}\p{N}_][\p{L}\p{N}_.@/-]*|\s+|[^\s]/gu;
const MAX_TYPOS = 2;

/** Return true if the text is a query: it begins with a verb in capitals, or with something very near to one. */
export function isQuery(text: string, verbs: readonly string[]): boolean {
  const first = /^\s*([A-Z]{3,})(?=[\s"']|$)/.exec(text)?.[1];
  if (!first) return false;
  const known = [...verbs, ...SQL_VERBS];
  if (known.includes(first)) return true;
  // A single word in capitals is more likely a name.
  const hasMore = /^\s*\S+\s+\S/.test(text);
  return hasMore && first.length > 3 && verbs.some((verb) => countTypos(first, verb) <= MAX_TYPOS);
}

function countTypos(left: string, right: string): number {
  let row = Array.from({ length: right.length + 1 }, (_, index) => index);
  for (let i = 1; i <= left.length; i++) {
    const next = [i];
    for (let j = 1; j <= right.length; j++) {
      const cost = left[i - 1] === right[j - 1] ? 0 : 1;
      next[j] = Math.min((row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1, (row[j - 1] ?? 0) + cost);
    }
    row = next;
  }
  return row[right.length] ?? 0;
}

/** Cut a query into its words, for their colours. Nothing is lost: the tokens together are the text. */
export function tokenize(text: string, language: QueryLanguage): Token[] {
  const verbs = [...language.verbs.map((verb) => verb.name), ...SQL_VERBS];
  const keywords = new Set(language.verbs.flatMap((verb) => verb.clauses.flatMap((clause) => clause.words)).flatMap((words) => words.split(" ")));
  const tables = new Set(language.tables);
  let hasVerb = false;
  return [...text.matchAll(PARTS)].map(({ 0: part, index }) => {
    const upper = part.toUpperCase();
    let kind: TokenKind = "plain";
    if (part.startsWith('"') || part.startsWith("'")) kind = "text";
    else if (/^\d+([.]\d+)?$/.test(part)) kind = "number";
    else if (!hasVerb && verbs.includes(upper)) kind = "verb";
    else if (keywords.has(upper)) kind = "keyword";
    else if (tables.has(part)) kind = "table";
    if (part.trim()) hasVerb = true;
    return { kind, text: part, start: index };
  });
}

/** Say what may stand at the caret: verbs, clauses, tables, choices or keys. */
export function complete(text: string, caret: number, language: QueryLanguage): Completion | null {
  const before = tokenize(text.slice(0, caret), language).filter((token) => token.text.trim());
  const last = before.at(-1);
  const isInside = last !== undefined && last.start + last.text.length === caret;
  const current = isInside ? last : null;
  const previous = isInside ? before.slice(0, -1) : before;
  const start = current?.start ?? caret;
  const word = current?.text ?? "";
  const offer = (options: readonly string[]) => make(start, caret, matchStart(options, word));
  if (previous.length === 0) return word ? offer(language.verbs.map((verb) => verb.name)) : null;
  const verb = language.verbs.find((known) => known.name === previous[0]?.text.toUpperCase());
  if (!verb) return null;
  const lead = previous.at(-1)?.text.toUpperCase() ?? "";
  if (wantsKey(verb, previous, lead)) {
    return { start, end: caret, options: [], keyPrefix: word.replace(/^["']/, "") };
  }
  if (current?.kind === "text") return null;
  const clause = verb.clauses.find((known) => known.words.includes(lead));
  if (clause?.choices.length) return offer(clause.choices);
  if (clause?.expected.startsWith("a table")) return offer(language.tables);
  if (!word || clause) return null;
  return offer(verb.clauses.map((known) => known.words[0] ?? ""));
}

function wantsKey(verb: VerbHelp, previous: readonly Token[], lead: string): boolean {
  if (!verb.takes_keys) return false;
  if (verb.name === "LOOKUP") return previous.length === 1 || lead === "," || lead === "[";
  return lead === "FROM";
}

function matchStart(options: readonly string[], word: string): string[] {
  const wanted = word.toUpperCase();
  return options.filter((option) => option.toUpperCase().startsWith(wanted) && option !== word);
}

function make(start: number, end: number, options: readonly string[]): Completion | null {
  return options.length ? { start, end, options, keyPrefix: null } : null;
}

/** Write a key as an operand: in quotes if it has other characters than a plain word. */
export function quoteKey(key: string): string {
  return /^[\w.@/-]+$/.test(key) ? key : `"${key.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`;
}

const STOP_WORDS = new Set("the and for with that this what who when where which how does did has have was were are from about into you your".split(" "));

/** The words of a question that are worth marking in a passage. */
export function wordsToMark(text: string): string[] {
  const quoted = [...text.matchAll(/"((?:[^"\\]|\\.)*)"/g)].map((match) => match[1] ?? "").join(" ");
  const words = (quoted || text).toLowerCase().match(/[\p{L}\p{N}]{3,}/gu) ?? [];
  return [...new Set(words)].filter((word) => !STOP_WORDS.has(word));
}
