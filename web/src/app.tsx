/* The application: start, sign in if needed, and the page of the address. */
import { Component, useEffect, useState, type ReactNode } from "react";

import { getTrustsHeaders, SIGN_IN_NEEDED } from "./api/client";
import { useIdentity } from "./api/identity";
import { fetchCaller, start as startSession } from "./api/session";
import { useApi } from "./api/use-api";
import { Button } from "./components/button";
import { EmptyState } from "./components/empty-state";
import { LoadState } from "./components/load-state";
import { Toasts } from "./components/toast";
import { TooltipProvider } from "./components/tooltip";
import { isBelow, Layout } from "./layout/layout";
import { PageFrame } from "./layout/page-frame";
import { PAGES } from "./pages/pages";
import { SignInPage } from "./pages/sign-in-page";
import { useReturn } from "./return";
import { Link, usePath } from "./router";
import { texts } from "./texts";

export function App() {
  const started = useApi(startSession, []);
  const [isSigningIn, setIsSigningIn] = useState(false);
  useEffect(() => {
    const show = () => setIsSigningIn(true);
    window.addEventListener(SIGN_IN_NEEDED, show);
    return () => window.removeEventListener(SIGN_IN_NEEDED, show);
  }, []);
  useReturn(() => {
    const user = started.data?.caller?.id;
    if (!user || getTrustsHeaders()) return;
    // Where anonymous callers are served, a login that has expired would only look like an empty memory.
    fetchCaller().then(
      (caller) => caller && caller.id !== user && setIsSigningIn(true),
      // The server is away; what the person does next says so.
      () => undefined,
    );
  });
  const finish = () => {
    setIsSigningIn(false);
    started.reload();
  };
  return (
    <TooltipProvider>
      <LoadState loaded={started}>
        {(start) =>
          isSigningIn || start.caller === null ? (
            <SignInPage start={start} onSignedIn={finish} />
          ) : (
            <Layout start={start}>
              <CurrentPage />
            </Layout>
          )
        }
      </LoadState>
      <Toasts />
    </TooltipProvider>
  );
}

function CurrentPage() {
  const path = usePath();
  const { user, tenant } = useIdentity();
  const page = PAGES.find((candidate) => isBelow(path, candidate.path));
  if (!page) return <NotFound />;
  // A page keeps nothing of another user or of a page that failed.
  return (
    <ErrorBoundary key={`${page.path} ${user} ${tenant}`}>
      <page.component />
    </ErrorBoundary>
  );
}

function NotFound() {
  return (
    <PageFrame title={texts.errors.notFoundTitle}>
      <EmptyState icon="question" title={texts.errors.notFoundTitle} actions={<Link href="/chat">{texts.chat.title}</Link>}>
        {texts.errors.notFound}
      </EmptyState>
    </PageFrame>
  );
}

class ErrorBoundary extends Component<{ children: ReactNode }, { hasFailed: boolean }> {
  override state = { hasFailed: false };

  static getDerivedStateFromError() {
    return { hasFailed: true };
  }

  override render() {
    if (!this.state.hasFailed) return this.props.children;
    const reload = <Button onClick={() => location.reload()}>{texts.common.tryAgain}</Button>;
    return (
      <EmptyState icon="alert" title={texts.errors.title} actions={reload}>
        {texts.errors.pageFailed}
      </EmptyState>
    );
  }
}
