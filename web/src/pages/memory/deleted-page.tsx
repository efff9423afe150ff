/* What was deleted and can come back. */
import { call } from "../../api/client";
import type { EntityView } from "../../api/types";
import { useApi } from "../../api/use-api";
import { Badge } from "../../components/badge";
import { Button } from "../../components/button";
import { EmptyState } from "../../components/empty-state";
import { LoadState } from "../../components/load-state";
import { showError, showToast } from "../../components/toast";
import { shorten, textOf, titleOf } from "../../entity-links";
import { formatDateTime, toWords } from "../../format";
import { PageFrame } from "../../layout/page-frame";
import { Link } from "../../router";
import { texts } from "../../texts";
import styles from "./results.module.css";

const TABLES = ["resources", "moments", "ontologies", "users", "files", "sessions"];

export function DeletedPage() {
  const rows = useApi(async (signal) => {
    const query = { where: "deleted_at IS NOT NULL", with_deleted: true, order_by: "-deleted_at", limit: 50 };
    const pages = await Promise.all(
      TABLES.map((table) => call("GET /api/v1/entities/{table}", { path: { table }, query, signal })),
    );
    const found = pages.flatMap((page) => page.data);
    return found.sort((left, right) => String(right.deleted_at).localeCompare(String(left.deleted_at)));
  }, []);
  const restore = async (row: EntityView) => {
    try {
      await call("POST /api/v1/restore/{table}/{key}", { path: { table: row.table, key: row.id } });
      rows.setData((data) => data?.filter((other) => other.id !== row.id) ?? null);
      showToast(texts.memory.restored(titleOf(row.table, row, row.key ?? row.id)));
    } catch (error) {
      showError(error);
    }
  };
  return (
    <PageFrame
      title={texts.memory.deletedTitle}
      description={texts.memory.deletedText}
      actions={<Link href="/memory">{texts.memory.back}</Link>}
    >
      <LoadState loaded={rows}>
        {(found) =>
          found.length === 0 ? (
            <EmptyState icon="trash" title={texts.memory.noDeletedTitle}>
              {texts.memory.noDeleted}
            </EmptyState>
          ) : (
            <ul className={styles.list}>
              {found.map((row) => (
                <li key={row.id} className={styles.card}>
                  <header className={styles.cardHeader}>
                    <h2>{titleOf(row.table, row, row.key ?? row.id)}</h2>
                    <Badge>{texts.memory.tables[row.table] ?? toWords(row.table)}</Badge>
                  </header>
                  <p className={styles.passage}>{shorten(textOf(row), 240)}</p>
                  <footer className={styles.cardFooter}>
                    <span>{texts.memory.deletedAt(formatDateTime(row.deleted_at ?? ""))}</span>
                    <span className={styles.reason}>
                      <Button isSmall icon="restore" onClick={() => void restore(row)}>
                        {texts.memory.restore}
                      </Button>
                    </span>
                  </footer>
                </li>
              ))}
            </ul>
          )
        }
      </LoadState>
    </PageFrame>
  );
}
