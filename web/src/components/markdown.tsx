/* Markdown as React elements. Raw HTML stays text, links lead only to web and mail addresses, pictures become links. */
import { lexer, type MarkedToken, type Token, type Tokens } from "marked";
import { memo, useRef, type ReactNode } from "react";

import { texts } from "../texts";
import { CopyButton } from "./copy-button";
import styles from "./markdown.module.css";

const SAFE_LINK = /^(?:https?:\/\/|mailto:)/i;
const MAX_DEPTH = 24;
const ENTITY = /&(?:#\d{1,7}|#x[\da-f]{1,6}|[a-z][a-z\d]{1,31});/gi;

interface Split {
  text: string;
  /** Blocks that later text cannot change. */
  done: Token[];
  doneEnd: number;
}

/** Show a text that may still grow. Only its last block is read and drawn again when it does. */
export const Markdown = memo(function Markdown({ text }: { text: string }) {
  const split = useRef<Split>({ text: "", done: [], doneEnd: 0 });
  const blocks = splitBlocks(split.current, text);
  return (
    <div className={styles.markdown}>
      {blocks.map((block, index) => (
        <Block key={index} token={block} depth={0} />
      ))}
    </div>
  );
});

const CODE_NAME = /\.(?:c|cpp|cs|css|csv|go|h|html?|java|js|json|jsonl|jsx|log|php|py|rb|rs|sh|sql|toml|ts|tsv|tsx|xml|ya?ml)(?:#\d+)?$/i;

/** Return whether a file with this name holds a text that only looks like Markdown. */
export function isCodeName(name: string): boolean {
  return CODE_NAME.test(name);
}

/** Return the words of a Markdown text, for places without room for headings and tables. */
export function toPlainText(text: string): string {
  return readBlocks(text).map(blockText).filter(Boolean).join("\n").trim();
}

function blockText(token: Token): string {
  const known = token as MarkedToken;
  switch (known.type) {
    case "code":
    case "codespan":
      return known.text;
    case "hr":
    case "space":
    case "def":
    case "checkbox":
      return "";
    case "br":
      return "\n";
    case "list":
      return (known as Tokens.List).items.map((item) => `• ${item.tokens.map(blockText).join(" ").trim()}`).join("\n");
    case "table": {
      const { header, rows } = known as Tokens.Table;
      return [header, ...rows].map((row) => row.map((cell) => cell.tokens.map(blockText).join("")).join(" · ")).join("\n");
    }
    case "image":
      return decodeEntities(known.text);
    default: {
      const { tokens, text, type, raw } = token as Tokens.Generic;
      if (tokens) return tokens.map(blockText).join(type === "blockquote" || type === "blocks" ? "\n" : "");
      return type === "text" || type === "escape" ? decodeEntities(String(text)) : raw;
    }
  }
}

/** Return whether a text looks different as Markdown than as it was written. */
export function hasMarkup(text: string): boolean {
  const isPlain = (token: Token) => token.type === "text" || token.type === "br" || token.type === "escape";
  return readBlocks(text).some(
    (block) => block.type !== "space" && !(block.type === "paragraph" && ((block as Tokens.Paragraph).tokens ?? []).every(isPlain)),
  );
}

function splitBlocks(split: Split, text: string): Token[] {
  if (!text.startsWith(split.text)) Object.assign(split, { done: [], doneEnd: 0 });
  split.text = text;
  const tail = readBlocks(text.slice(split.doneEnd));
  // A list or a table goes on after a blank line, so the last block with content is not done.
  let open = tail.length - 1;
  while (open > 0 && tail[open]?.type === "space") open -= 1;
  const finished = tail.slice(0, open);
  split.done = [...split.done, ...finished];
  split.doneEnd += finished.reduce((sum, block) => sum + block.raw.length, 0);
  return [...split.done, ...tail.slice(open)];
}

function readBlocks(source: string): Token[] {
  try {
    // The lexer changes tabs and line ends, and the lengths of blocks must add up.
    const blocks: Token[] = lexer(source, { gfm: true, breaks: true });
    const length = blocks.reduce((sum, block) => sum + block.raw.length, 0);
    return length === source.length ? blocks : blocks.length > 0 ? [asOne(blocks, source)] : [];
  } catch {
    // Thousands of nested quotes or brackets.
    return [{ type: "text", raw: source, text: source }];
  }
}

function asOne(blocks: Token[], raw: string): Token {
  return { type: "blocks", raw, tokens: blocks };
}

interface BlockProps {
  token: Token;
  depth: number;
}

const Block = memo(
  function Block({ token, depth }: BlockProps): ReactNode {
    return depth > MAX_DEPTH ? token.raw : renderBlock(token as MarkedToken, depth + 1);
  },
  (old, next) => old.token === next.token || (old.token.raw === next.token.raw && old.token.type === next.token.type),
);

function renderBlock(token: MarkedToken, depth: number): ReactNode {
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "heading": {
      // The page has headings of its own above.
      const Heading = `h${Math.min(6, token.depth + 2)}` as "h3";
      return <Heading data-level={token.depth}>{renderInline(token.tokens, depth)}</Heading>;
    }
    case "paragraph":
      return <p>{renderInline(token.tokens, depth)}</p>;
    case "code":
      return <CodeBlock text={token.text} language={token.lang} />;
    case "blockquote":
      return <blockquote>{renderBlocks(token.tokens, depth)}</blockquote>;
    case "list":
      return <List token={token as Tokens.List} depth={depth} />;
    case "table":
      return <Table token={token as Tokens.Table} depth={depth} />;
    case "hr":
      return <hr />;
    case "html":
      return <p>{token.raw}</p>;
    case "text":
      return token.tokens ? renderInline(token.tokens, depth) : decodeEntities(token.text);
    default: {
      const { tokens } = token as Tokens.Generic;
      return tokens ? renderBlocks(tokens, depth) : <p>{token.raw}</p>;
    }
  }
}

function renderBlocks(tokens: Token[], depth: number): ReactNode {
  return tokens.map((token, index) => <Block key={index} token={token} depth={depth} />);
}

function List({ token, depth }: { token: Tokens.List; depth: number }) {
  const items = token.items.map((item, index) => <ListItem key={index} item={item} depth={depth} />);
  return token.ordered ? <ol start={token.start === "" ? 1 : token.start}>{items}</ol> : <ul>{items}</ul>;
}

const ListItem = memo(
  function ListItem({ item, depth }: { item: Tokens.ListItem; depth: number }) {
    const body = item.tokens.filter((token) => token.type !== "checkbox");
    return (
      <li className={item.task ? styles.task : undefined}>
        {item.task && <input type="checkbox" checked={item.checked ?? false} disabled aria-label={texts.markdown.task} />}
        {renderBlocks(body, depth)}
      </li>
    );
  },
  (old, next) => old.item.raw === next.item.raw && old.item.loose === next.item.loose,
);

function Table({ token, depth }: { token: Tokens.Table; depth: number }) {
  return (
    <div className={styles.scroller} tabIndex={0} role="group" aria-label={texts.markdown.table}>
      <table>
        <thead>
          <tr>
            {token.header.map((cell, index) => (
              <th key={index} data-align={token.align[index] ?? undefined}>
                {renderInline(cell.tokens, depth)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {token.rows.map((row, index) => (
            <tr key={index}>
              {row.map((cell, column) => (
                <td key={column} data-align={token.align[column] ?? undefined}>
                  {renderInline(cell.tokens, depth)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function CodeBlock({ text, language }: { text: string; language?: string }) {
  return (
    <div className={styles.code}>
      <div className={styles.codeHead}>
        <span>{language || texts.markdown.code}</span>
        <CopyButton text={text} />
      </div>
      <pre tabIndex={0}>
        <code>{text}</code>
      </pre>
    </div>
  );
}

function renderInline(tokens: Token[] | undefined, depth: number): ReactNode {
  if (depth > MAX_DEPTH) return tokens?.map((token) => token.raw).join("");
  return tokens?.map((token, index) => <Inline key={index} token={token as MarkedToken} depth={depth + 1} />);
}

function Inline({ token, depth }: { token: MarkedToken; depth: number }): ReactNode {
  switch (token.type) {
    case "strong":
      return <strong>{renderInline(token.tokens, depth)}</strong>;
    case "em":
      return <em>{renderInline(token.tokens, depth)}</em>;
    case "del":
      return <del>{renderInline(token.tokens, depth)}</del>;
    case "codespan":
      return <code>{token.text}</code>;
    case "br":
      return <br />;
    case "link":
      return <SafeLink href={token.href}>{renderInline(token.tokens, depth)}</SafeLink>;
    case "image":
      // A picture of another server would tell it that this was read.
      return <SafeLink href={token.href}>{decodeEntities(token.text) || token.href}</SafeLink>;
    case "escape":
      return token.text;
    case "text":
      return token.tokens ? renderInline(token.tokens, depth) : decodeEntities(token.text);
    default:
      return token.raw;
  }
}

/** A link to a web or mail address. Any other address, such as `javascript:`, is shown as text. */
export function SafeLink({ href, children }: { href: string; children: ReactNode }) {
  if (!SAFE_LINK.test(href)) return <span>{children}</span>;
  return (
    <a href={href} target="_blank" rel="noopener noreferrer nofollow">
      {children}
    </a>
  );
}

export function isSafeLink(href: string): boolean {
  return SAFE_LINK.test(href);
}

function decodeEntities(text: string): string {
  if (!text.includes("&")) return text;
  // A document made from one entity holds only text.
  return text.replace(ENTITY, (entity) => new DOMParser().parseFromString(entity, "text/html").body.textContent ?? entity);
}
